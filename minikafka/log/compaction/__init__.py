"""Compaction: which records of a log are retained, the segments written from them, and how those take
the place of the old ones.
"""

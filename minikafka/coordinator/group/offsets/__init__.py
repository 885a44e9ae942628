"""Committed offsets of groups, plain and transactional, and their expiry."""

"""One segment: its batches, its indexes, and the segments of a log in order."""

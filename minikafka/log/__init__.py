"""Logs on disk: segments, indexes, producer state, checkpoints. Synchronous; the loop owns it all."""

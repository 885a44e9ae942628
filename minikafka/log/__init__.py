"""Logs on disk: segments, indexes, producer state, checkpoints. Synchronous, files only; owned by the event loop."""

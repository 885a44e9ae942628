"""The coordinator of consumer groups: requests, timers and outcomes of appends in, effects out."""

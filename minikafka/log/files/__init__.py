"""Files of a log directory beside its segments, and how files are opened, kept open and flushed."""

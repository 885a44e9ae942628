"""Work on log directories beside requests: retention, flushes, log cleaning, moves between directories."""

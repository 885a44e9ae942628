"""Many seeds: run in worker processes, counted in a file, replayed, and shrunk to what is needed to fail."""

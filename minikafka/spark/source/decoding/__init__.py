"""From the bytes of batches to Arrow columns."""

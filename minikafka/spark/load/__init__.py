"""Tables to topics: rows as record batches, straight into segment files, without a broker's CPU."""

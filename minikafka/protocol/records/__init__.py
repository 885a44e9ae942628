"""Record batches: headers, records, compression, control records."""

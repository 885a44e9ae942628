"""Requests and responses: versions, schemas, and the codec with its fast paths."""

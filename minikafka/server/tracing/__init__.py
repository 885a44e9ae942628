"""Following records: where a batch has been, broker by broker, for a person and for OpenTelemetry."""

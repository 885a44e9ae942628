"""``minikafka export``: the job, its formats and decoders, and its output."""

"""``minikafka tour``: stories about replication, told by brokers that run in one process and virtual time."""

"""``minikafka configs``."""

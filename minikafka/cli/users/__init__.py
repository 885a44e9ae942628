"""``minikafka users``."""

"""``minikafka topics``."""

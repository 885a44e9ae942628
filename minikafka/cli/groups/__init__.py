"""``minikafka groups``."""

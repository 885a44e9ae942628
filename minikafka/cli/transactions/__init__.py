"""``minikafka transactions``."""

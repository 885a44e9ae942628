"""``minikafka acls``."""

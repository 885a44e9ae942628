"""``minikafka produce`` and ``minikafka consume``."""

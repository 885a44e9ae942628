"""``minikafka reassign`` and ``minikafka elect-leaders``: where replicas are, and who leads."""

"""``minikafka reassign`` and ``minikafka elect-leaders``: where replicas are, and which leads."""

"""minikafka: a Kafka-compatible broker in Python. ``minikafka/ARCHITECTURE.md`` is the map."""

__version__ = "0.3.0.dev0"

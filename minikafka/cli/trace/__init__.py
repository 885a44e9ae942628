"""``minikafka trace``: the way of a record over brokers, as a time line."""

"""``minikafka bench``: the command line of the load generator."""

"""``minikafka cluster``: brokers on this machine, and what a cluster looks like."""

"""``minikafka dump-log``: log directories, without a broker."""

"""``minikafka analyze``, ``compact`` and ``export``: the command lines of the Spark jobs."""

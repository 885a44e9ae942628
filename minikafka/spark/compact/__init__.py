"""``minikafka compact``: the job, its plan, and the segments it writes."""

"""``minikafka analyze``: the job, what it computes, and its report."""

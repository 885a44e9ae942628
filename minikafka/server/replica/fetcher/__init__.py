"""Fetching from leaders. Kafka's fetcher threads are tasks here, ``num.replica.fetchers`` for each leader."""

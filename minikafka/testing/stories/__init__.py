"""Stories of replication in a simulated cluster: how its logs look, and what is done to it.

The scenarios in ``tests/scenarios`` and ``minikafka tour`` are told in these words.
"""

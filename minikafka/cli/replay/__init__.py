"""``minikafka record`` keeps what clients ask of a cluster and what they are answered; ``minikafka replay``
asks it again of another, and compares the answers.

`recording` is the file; `record` and `replay` are the commands. In the one is the relay between clients and
brokers, in the other what asks again, finds what differs, and learns the names that each cluster gives
itself.
"""

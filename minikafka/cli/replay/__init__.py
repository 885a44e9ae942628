"""``minikafka record`` keeps what clients ask of a cluster and what they are answered; ``minikafka replay``
asks it again of another, and compares the answers.

`recording` is the file; `record` and `replay` are the commands, with the relay between clients and brokers in
the one, and what asks again in the other; `compare` finds what differs and learns the names that each cluster
gives itself.
"""

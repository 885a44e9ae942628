"""``minikafka record`` keeps what clients ask of a cluster and what they are answered; ``minikafka replay``
asks it again of another, and compares the answers.

`recording` is the file, `relay` stands between clients and brokers, `compare` finds what differs and learns
the names that each cluster gives itself, `player` asks again; `record` and `replay` are the commands.
"""

"""``minikafka why``: why is it so? One sentence, the evidence, and where the mechanism is explained."""

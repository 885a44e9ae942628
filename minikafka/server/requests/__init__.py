"""One request on its way through the broker: its context, and the accounting of its time."""

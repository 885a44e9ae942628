"""What can be configured: Kafka's property names, types, defaults and bounds, and where values come from."""

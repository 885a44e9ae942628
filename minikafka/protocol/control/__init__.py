"""What brokers tell each other beside the public protocol: keys 4 to 7, which Kafka retired in 4.0."""

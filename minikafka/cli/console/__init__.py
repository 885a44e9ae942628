"""The console's API: a whole cluster as JSON for one page, from any broker or beside any Kafka cluster."""

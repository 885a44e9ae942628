"""Measuring: rates over sliding windows. Kafka: ``org.apache.kafka.common.metrics``."""

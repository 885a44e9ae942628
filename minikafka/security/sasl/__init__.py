"""SASL mechanisms as state machines, of the server and of the client: bytes in, bytes out.

Kafka: ``org.apache.kafka.common.security.{plain,scram,oauthbearer}``.
"""

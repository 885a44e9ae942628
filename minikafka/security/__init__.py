"""Principals, ACLs, TLS and SASL: what is known of them without a connection, a store or a clock."""

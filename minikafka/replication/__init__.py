"""The numbers of replication: pure state, numbers in and effects out."""

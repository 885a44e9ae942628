"""This broker's replicas: leaders and followers, reads, delayed operations, ISR changes, replication
quotas.
"""

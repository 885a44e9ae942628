"""Dynamic configuration of brokers, topics, groups, client metrics, quotas and loggers: as stored, as in
force.
"""

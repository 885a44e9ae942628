"""Group and transaction coordinators: their shards on the partitions of the internal topics, transaction
markers, and the verification of transactional appends.
"""

"""A broker's view of its cluster, and its place in it: metadata, its session, the coordination store,
connections to the other brokers.
"""

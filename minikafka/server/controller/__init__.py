"""The active controller's side effects: its event loop, its channels to brokers, and its reads and writes in
the coordination store.
"""

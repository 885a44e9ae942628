"""The controller's decisions: events in, effects out. No loop, no store, no network."""

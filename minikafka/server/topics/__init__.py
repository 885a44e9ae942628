"""Topics in the coordination store: created, deleted, assigned, reassigned, adopted."""

"""A broker's logs: the directories they lie in, loading, creating, moving, deleting and closing them."""

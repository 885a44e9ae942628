"""From a received request to its handler: the ordinary path, and those for requests that repeat."""

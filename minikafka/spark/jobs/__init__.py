"""The jobs: each reads, applies transforms, and writes."""

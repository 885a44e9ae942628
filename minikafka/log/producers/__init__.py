"""Idempotent and transactional producers of a log: their state, its snapshots, what an append must meet."""

"""Client quotas and client metrics: who has used how much of what, and how long responses are delayed."""

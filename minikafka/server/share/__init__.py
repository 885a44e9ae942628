"""Share groups on the leaders of partitions: sessions, fetches, acknowledgements, locks (KIP-932)."""

"""What a broker has decided of late: the events, the ring that keeps them, and its file. Knows no broker."""

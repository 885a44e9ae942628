"""Classic groups (JoinGroup, SyncGroup): members choose a leader, which computes the assignment."""

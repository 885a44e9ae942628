"""Share partitions and share sessions of a partition's leader (KIP-932); pure."""

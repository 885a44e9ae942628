"""The share coordinator: what is kept of share groups' progress in ``__share_group_state`` (KIP-932)."""

"""Bytes on sockets: the broker's server side (frames in, ordered responses out) and its client side."""

"""Coordinators: those of consumer groups. Requests in, effects out."""

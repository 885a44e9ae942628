"""Attacks, by what they use up; each module has a list ``ATTACKS``."""

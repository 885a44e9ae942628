"""A module for each story: ``SETUP``, the cluster that it begins with, and ``tell``, what happens."""

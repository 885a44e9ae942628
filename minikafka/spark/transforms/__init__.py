"""Pure functions from DataFrames to DataFrames: what the jobs compute, apart from reading and writing."""

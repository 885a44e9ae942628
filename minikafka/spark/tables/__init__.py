"""Topics as Apache Iceberg and Delta tables, each offset exactly once."""

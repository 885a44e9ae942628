"""The data sources ``kafka-log``, ``kafka-log-batches`` and ``kafka-log-sums``: from a log directory to rows.
The modules on the way, each below those that use it:

    log_files        which partitions and segments a log directory has; index files as arrays; a walk through
                     a segment: its batches and their headers
    options          what a user may say, and what Spark's filters say
    decode           the columns, as Spark and as Arrow name their types; from the bytes of batches to them
    split_reader     a task's work: find, check, decode; what becomes of damage and of files that are gone;
                     segments cut into chunks at batch boundaries
    planning         what is read of each log: bounds, transactions, splits
    datasource       Spark's side: batch reads and streams, of records and of batch headers; records added up
                     before Spark sees them, for ``minikafka analyze``
"""

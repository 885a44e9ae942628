"""The data sources ``kafka-log`` and ``kafka-log-batches``: from a log directory to rows. The modules on the
way, each below those that use it:

    schemas          the columns, as Spark and as Arrow name their types
    storage          list, open and read: local directories, and whatever pyarrow.fs reaches
    log_files        which partitions and segments a log directory has
    options          what a user may say
    segment_scan     a walk through a segment: its batches and their headers
    log_index        the index files as arrays
    decoding         from the bytes of batches to Arrow columns
    splits           segments cut into chunks at batch boundaries
    split_reader     a task's work: find, check, decode; what becomes of damage and of files that are gone
    transactions, log_bounds, filters, planning
                     what is read of each log
    tasks, datasource, batches, stream
                     Spark's side
    record_sums, sums_source
                     records added up before Spark sees them, for ``minikafka analyze``
"""

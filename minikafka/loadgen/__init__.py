"""The load generator behind ``minikafka bench``: any Kafka-compatible broker, driven by librdkafka.

Numbers in, reports out, in three rings:

- pure: ``workload`` (with its records, and workload files), ``messages`` (what a worker reports, with its
  latencies), ``report``, ``comparison`` (with the suites that are compared);
- the worker processes: ``worker`` (one job a process), and ``station``, their side of the conversation;
- the parent: ``runner`` (one workload: its processes and what each gets), ``targets`` (brokers' processes;
  topics and offsets; recipes to start and stop them), ``mock_cluster`` (librdkafka's, a process of its own).

Times are of ``CLOCK_MONOTONIC``, which all processes of a machine share, in nanoseconds; latencies are whole
microseconds. A latency counts from the moment at which a record was due, so that a stall of the target is a
latency of every record that was due in it (no coordinated omission).
"""

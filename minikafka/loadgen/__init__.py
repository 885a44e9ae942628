"""The load generator behind ``minikafka bench``: any Kafka-compatible broker, driven by librdkafka.

Numbers in, reports out, in three rings:

- pure: ``payloads``, ``histogram``, ``workload``, ``omb`` (workload files), ``messages``, ``report``,
``plot``,
  ``comparison``, ``suites``;
- the worker processes: ``worker`` (one job a process) and its kinds ``producing``, ``consuming``,
  ``grouping``;
- the parent: ``runner`` (one workload: its processes and what each gets), ``cluster`` (the target's topics
  and offsets), ``recipes`` and ``brokers`` (targets to start and stop).

Times are of ``CLOCK_MONOTONIC``, which all processes of a machine share, in nanoseconds; latencies are whole
microseconds. A latency counts from the moment at which a record was due, so that a stall of the target is a
latency of every record that was due in it (no coordinated omission).
"""

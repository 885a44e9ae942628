"""The Kafka wire protocol and the record format: bytes in, values out, and back.

- ``wire``: ``api_versions`` (the APIs, and which versions of them this broker speaks), ``codec`` (headers and
  bodies of every API and version, after Kafka's message definitions: ``schema``, ``reading``, ``writing``),
  ``fast_paths`` (Produce and Fetch, hand-tuned)
- ``records``: ``batch`` (the 61-byte header of a record batch, magic 2), ``records`` (the records inside a
  batch), ``compression`` (the five codecs)
- ``control``: what a controller and its brokers tell each other
- ``internal``: the records of the internal topics

Nothing here waits, reads a clock or touches a file. Bytes from a peer are not trusted: they end in a value,
in ``PeerProtocolError`` or in ``CorruptBatch``, and never cost more memory than a small multiple of their
own size.
"""

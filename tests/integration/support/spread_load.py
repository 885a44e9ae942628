"""A steady load on all partitions of a topic; each value is there once."""

from __future__ import annotations

import logging
import threading
import time
from itertools import count
from typing import Any

from confluent_kafka import Message, Producer

from tests.integration.support.load import SETTINGS, UNKNOWN

RECORDS_A_SECOND = 500


class SpreadLoad:
    """Writes numbered values to each partition in turn, from a thread, for the length of a ``with`` block."""

    def __init__(
        self, bootstrap: str, topic: str, *, partitions: int, records_a_second: int = RECORDS_A_SECOND
    ) -> None:
        self._topic = topic
        self._partitions = partitions
        self._records_a_second = records_a_second
        logger = logging.getLogger("tests.load")
        logger.setLevel(logging.CRITICAL)  # losing connections is the plan
        self._producer = Producer({"bootstrap.servers": bootstrap} | SETTINGS, logger=logger)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spread-load")
        self.acked: dict[bytes, tuple[int, int]] = {}
        """Value → the partition and the offset it was acknowledged with, which may be ``UNKNOWN``."""
        self.failures: list[str] = []

    def __enter__(self) -> SpreadLoad:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        left = self._producer.flush(120)
        assert left == 0, f"{left} records were never answered"
        assert not self.failures, self.failures[:5]

    def _run(self) -> None:
        started = time.monotonic()
        for number in count():
            if self._stop.is_set():
                return
            self._producer.poll(max(started + number / self._records_a_second - time.monotonic(), 0))
            value = b"%012d" % number
            self._producer.produce(
                self._topic, value=value, partition=number % self._partitions, on_delivery=self._delivered
            )

    def _delivered(self, error: Any, message: Message) -> None:
        if error is not None:
            self.failures.append(str(error))
        else:
            value, partition, offset = message.value(), message.partition(), message.offset()
            assert value is not None and partition is not None
            self.acked[value] = partition, UNKNOWN if offset is None else offset

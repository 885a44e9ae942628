"""A steady load from a producer that wants every acknowledgement, and what it was told."""

from __future__ import annotations

import logging
import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import islice, pairwise
from typing import Any

from confluent_kafka import KafkaException, Message, Producer

from tests.integration.support import confluent
from tests.integration.support.clients import Client
from tests.integration.support.records import numbered

RECORDS_A_SECOND = 250
SIZE = 100

SETTINGS: dict[str, Any] = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 2,
    "message.timeout.ms": 120_000,
    "request.timeout.ms": 3_000,
    "socket.timeout.ms": 5_000,
    "retry.backoff.ms": 50,
    "retry.backoff.max.ms": 200,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 200,
    "topic.metadata.refresh.interval.ms": 1_000,
}
"""A client that looks again soon, so that what is measured is the cluster."""


IsKnown = Callable[[str, Sequence[int]], bool]
"""Whether it is known why a record of a topic is at several offsets."""

TICK_S = 0.1

UNKNOWN = -1
"""The offset of a batch that the broker knows to be there already (DUPLICATE_SEQUENCE_NUMBER): a producer's
state in a snapshot has the offset of its last batch alone, as in Kafka."""


class Load:
    """Writes numbered records to partition 0 of each topic in turn, from a thread, for the length of a
    ``with`` block; its end waits until every record is answered."""

    def __init__(self, bootstrap: str, topics: Sequence[str], **settings: Any) -> None:
        self._topics = topics
        logger = logging.getLogger("tests.load")
        logger.setLevel(logging.CRITICAL)  # librdkafka reports lost connections; here losing them is the plan
        given = {name.replace("_", "."): value for name, value in settings.items()}
        self._producer = Producer({"bootstrap.servers": bootstrap} | SETTINGS | given, logger=logger)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load")
        self.failures: list[str] = []
        self.acked: dict[str, dict[int, int]] = {topic: {} for topic in topics}
        """Topic → the record's number → its offset."""
        self._times: dict[str, list[tuple[float, float]]] = {topic: [] for topic in topics}
        """Topic → when each record was sent, and when it was acknowledged."""

    def __enter__(self) -> Load:
        self._thread.start()
        confluent.wait_until(lambda: all(self.acked.values()), "the load begins")
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        left = self._producer.flush(120)
        if left:
            self.failures.append(f"{left} records were never answered")

    def _run(self) -> None:
        try:
            self._send_all()
        except KafkaException as error:  # the client gives up for good
            self.failures.append(str(error))

    def _send_all(self) -> None:
        number = 0
        due = time.monotonic()
        while not self._stop.is_set():
            due += len(self._topics) / RECORDS_A_SECOND
            if (wait_s := due - time.monotonic()) > 0:
                self._producer.poll(wait_s)
            if len(self._producer) > 10_000:  # no broker takes them: wait for one that does
                self._producer.poll(0.05)
                continue
            for topic in self._topics:
                self._send(topic, number)
            number += 1

    def _send(self, topic: str, number: int) -> None:
        sent = time.monotonic()

        def delivered(error: Any, message: Message) -> None:
            if error is not None:
                self.failures.append(f"{topic} {number}: {error}")
            else:
                offset = message.offset()
                self.acked[topic][number] = UNKNOWN if offset is None else offset
                self._times[topic].append((sent, time.monotonic()))

        record = numbered(number, size=SIZE)
        self._producer.produce(topic, key=record.key, value=record.value, partition=0, on_delivery=delivered)

    def wait_for_more(self, topic: str, since: float, *, deadline_s: float) -> float:
        """Wait until a record that was sent after ``since`` (monotonic) is acknowledged; returns how long
        after ``since`` that was, in seconds."""
        found = 0.0

        def is_there() -> bool:
            nonlocal found
            for sent, acked in reversed(self._times[topic]):
                if sent >= since:
                    found = acked - since
                if acked < since:
                    break
            return found > 0

        confluent.wait_until(is_there, f"{topic} takes records again", deadline_s=deadline_s)
        return found

    def longest_gap_s(self) -> float:
        """The longest time in which records of some topic were sent, and none was acknowledged. A time in
        which this process stood still too is the machine's, and does not count."""
        gaps = [0.0]
        for times in self._times.values():
            ticks = sorted({int(sent / TICK_S) for sent, _ in times})
            for (_, earlier), (_, later) in pairwise(times):
                if later - earlier > TICK_S:
                    sending = bisect_right(ticks, later / TICK_S) - bisect_left(ticks, int(earlier / TICK_S))
                    gaps.append(min(later - earlier, sending * TICK_S))
        return max(gaps)

    def check(self, bootstrap: str, client: Client, *, is_known: IsKnown = lambda _, __: False) -> None:
        """Every acknowledged record is at its offset, for another client; none is out of order, and none is
        there twice, but where ``is_known``: then its client has sent it as new, and all behind it."""
        assert not self.failures, self.failures[:5]
        ends = {topic: confluent.latest(bootstrap, topic) for topic in self._topics}
        for topic, records in client.read_all(bootstrap, ends).items():
            by_offset = {record.offset: record for record in records}
            places: dict[int, list[int]] = {}
            for record in records:
                if _is_numbered(record.value):
                    places.setdefault(int((record.value or b"")[:12]), []).append(record.offset)
            for number, offset in self.acked[topic].items():
                if offset == UNKNOWN:
                    assert number in places, f"{topic}: record {number} is nowhere"
                    continue
                key, value, *_ = numbered(number, size=SIZE)
                found = by_offset.get(offset)
                assert found is not None and (found.key, found.value) == (key, value), (
                    f"{topic}: record {number} is not at {offset} but {found}"
                )
            twice = {number: offsets for number, offsets in places.items() if len(offsets) > 1}
            unknown = {
                number: offsets
                for number, offsets in twice.items()
                if self.acked[topic].get(number) not in (offsets[-1], UNKNOWN) or not is_known(topic, offsets)
            }
            assert not unknown, f"{len(unknown)} records are there twice: {_shown(topic, unknown)}"
            last = [offsets[-1] for _, offsets in sorted(places.items())]
            assert last == sorted(last), f"{topic}: records are out of order"


def _shown(topic: str, twice: Mapping[int, Sequence[int]]) -> str:
    texts = [
        f"{number} at " + " and ".join(f"{offset} of {topic}-0" for offset in offsets)
        for number, offsets in islice(twice.items(), 20)
    ]
    return ", ".join(texts)


def _is_numbered(value: bytes | None) -> bool:
    """Whether a record is the load's; a test may write others."""
    return value is not None and value[:12].isdigit()

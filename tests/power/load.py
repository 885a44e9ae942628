"""What a broker does while the power goes: writers of topics with other promises, commits of groups, new
topics, moves between log directories; and what of it must be there afterwards.

What a client hears once the power is going is no promise: a disk that is really without power says nothing
more, while an fsync that the shutdown overtakes may end well (an ack on XFS whose record was gone).

A topic that is ``durable`` has ``flush.messages=1``: what was acked with acks=all is there. Any other may
lose the end of what was written since the last cut, and nothing before it.
"""

from __future__ import annotations

import random
import struct
import threading
from collections.abc import Callable
from typing import Any, Final

from minikafka.errors import ErrorCode
from minikafka.protocol.records.batch import CompressionType, iterate_headers
from minikafka.protocol.records.records import Record, build_batch, iterate_records
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.protocol.wire.codec import decode_response, encode_request
from tests.integration.support.wire import RawClient

VERSIONS: Final = {
    ApiKey.PRODUCE: 9,
    ApiKey.CREATE_TOPICS: 5,
    ApiKey.OFFSET_COMMIT: 8,
    ApiKey.OFFSET_FETCH: 7,
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.ALTER_REPLICA_LOG_DIRS: 2,
    ApiKey.METADATA: 4,
}
KEYS: Final = 20
_NUMBER: Final = struct.Struct(">q")
_NOW_MS: Final = 1_700_000_000_000
_TIMEOUT_MS: Final = 30_000


class Connection(RawClient):
    """One that asks by the fields of a request."""

    def ask(self, api_key: ApiKey, **body: Any) -> Any:
        """The response's entity. Raises OSError."""
        version = VERSIONS[api_key]
        request = encode_request(
            api_key=api_key, api_version=version, correlation_id=1, client_id="load", body=body
        )
        self.send(request)
        (size,) = struct.unpack(">i", self._receive_exactly(4))
        frame = bytes(self._receive_exactly(size))
        return decode_response(api_key=api_key, api_version=version, frame=frame)[1]


class Topic:
    """A topic with one partition, its writer's records numbered from 0 on, and what is known of them."""

    def __init__(self, name: str, *, durable: bool, compacted: bool, power_goes: threading.Event) -> None:
        self._power_goes = power_goes
        self.name = name
        self.durable = durable
        self.compacted = compacted
        self.next_number = 0
        self.must_have: set[int] = set()
        """Acked where that is a promise, or there after an earlier cut. Of a compacted topic the last of
        each key."""
        self.begun_with = 0
        """The first number since the last cut."""

    def configs(self) -> dict[str, str]:
        # Timestamps go up by one with each record: a roll after so many.
        configs = {
            "segment.ms": "150",
            "segment.jitter.ms": "0",
            "index.interval.bytes": "1024",
            "file.delete.delay.ms": "50",
        }
        if self.durable:
            configs["flush.messages"] = "1"
        if self.compacted:
            configs |= {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
        return configs

    def check(self, port: int) -> list[str]:
        """Read all of it; what is wrong. Then what was found must stay."""
        found = self._read(port)
        numbers = [number for number, _ in found]
        wrong = []
        if numbers != sorted(set(numbers)):
            wrong.append(f"{self.name}: out of order or twice")
        wrong += self._compacted_wrong(numbers) if self.compacted else self._plain_wrong(numbers)
        self.must_have = set(numbers)
        self.begun_with = self.next_number
        return wrong

    def _plain_wrong(self, numbers: list[int]) -> list[str]:
        wrong = []
        missing = sorted(self.must_have - set(numbers))
        if missing:
            wrong.append(f"{self.name}: {len(missing)} records are lost, {missing[0]} to {missing[-1]}")
        since = [number for number in numbers if number >= self.begun_with]
        if since != list(range(self.begun_with, self.begun_with + len(since))):
            wrong.append(
                f"{self.name}: a hole in what was written since {self.begun_with}: {since[:3]}…{since[-3:]}"
            )
        return wrong

    def _compacted_wrong(self, numbers: list[int]) -> list[str]:
        newest = {number % KEYS: number for number in numbers}
        lost = [number for number in sorted(self.must_have) if newest.get(number % KEYS, -1) < number]
        return [f"{self.name}: the newest of a key is lost: {lost[:5]}"] if lost else []

    def _read(self, port: int) -> list[tuple[int, int]]:
        found, empty = [], 0
        with Connection(port) as client:
            _, _, offset = client.list_offset(self.name, 0, -2)
            _, _, end = client.list_offset(self.name, 0, -1)
            while offset < end:
                data = client.fetch(self.name, 0, offset)
                assert data.error == 0, f"{self.name}: fetch from {offset} answers {data.error}"
                before = offset
                for position, header in iterate_headers(data.records):
                    batch = memoryview(data.records)[position : position + header.size]
                    offset = header.next_offset
                    found += [
                        (_NUMBER.unpack_from(record.value or b"")[0], record.offset)
                        for record in iterate_records(batch)
                        if record.offset >= before
                    ]
                empty = empty + 1 if offset == before else 0
                if empty:  # cold, moved at this moment, or offsets that compaction has emptied
                    if empty > (3 if self.compacted else 100):
                        break
                    threading.Event().wait(0.02)
        return found

    def write(self, client: Connection, rng: random.Random) -> None:
        """One batch, and what its answer promises. Raises OSError."""
        count = rng.choice((1, 1, 3, 20))
        numbers = range(self.next_number, self.next_number + count)
        self.next_number += count
        records = [
            Record(
                place,
                _NOW_MS + number,
                b"%d" % (number % KEYS) if self.compacted else None,
                _NUMBER.pack(number) + rng.randbytes(rng.choice((0, 100, 3000))),
                (),
            )
            for place, number in enumerate(numbers)
        ]
        partition = {
            "index": 0,
            "records": build_batch(records, compression=rng.choice(tuple(CompressionType))),
        }
        topic = {"name": self.name, "partition_data": [partition]}
        answer = client.ask(
            ApiKey.PRODUCE, transactional_id=None, acks=-1, timeout=_TIMEOUT_MS, topic_data=[topic]
        )
        error = answer.responses[0].partition_responses[0].error_code
        if error != ErrorCode.NONE:
            raise ConnectionError(f"{self.name}: {error!r}")
        if self.durable and not self._power_goes.is_set():
            self.must_have |= set(numbers)


class Load:
    """All that goes on, each in a thread with a connection of its own, until ``stop``."""

    GROUP: Final = "group"

    def __init__(self, directories: list[str], *, rng: random.Random) -> None:
        self.power_goes = threading.Event()
        """Set before the power is cut."""
        self.topics = [
            Topic(name, durable=durable, compacted=compacted, power_goes=self.power_goes)
            for name, durable, compacted in (
                ("durable", True, False),
                ("plain", False, False),
                ("durable-compacted", True, True),
                ("compacted", False, True),
            )
        ]
        self.committed = 0
        self.created: list[str] = []
        self._directories = directories
        self._rng = rng
        self._moves = 0
        self._is_stopped = threading.Event()
        self._threads: list[threading.Thread] = []

    def acked(self) -> int:
        return sum(len(topic.must_have) for topic in self.topics) + self.committed + len(self.created)

    def prepare(self, port: int) -> None:
        """Make the topics; that of the groups' offsets is durable because the broker's default is."""
        with Connection(port) as client:
            for topic in self.topics:
                self._create(client, topic.name, topic.configs())
            self._commit(client, 0)

    def start(self, port: int) -> None:
        self._is_stopped.clear()
        self.power_goes.clear()
        works = [*(topic.write for topic in self.topics), self._commit_next, self._create_next, self._move]
        self._threads = [
            threading.Thread(target=self._go_on, args=(port, work, random.Random(self._rng.random())))
            for work in works
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Once the broker is gone: what waits for an answer gets none."""
        self._is_stopped.set()
        for thread in self._threads:
            thread.join()
        self._threads = []

    def check(self, port: int) -> list[str]:
        """What is wrong after a cut."""
        wrong = [each for topic in self.topics for each in topic.check(port)]
        with Connection(port) as client:
            found = self._committed(client)
            if found < self.committed:
                wrong.append(f"the commit of {self.committed} is lost: {found}")
            self.committed = max(found, self.committed)
            names = {
                topic.name
                for topic in client.ask(ApiKey.METADATA, topics=None, allow_auto_topic_creation=False).topics
            }
            if missing := sorted(set(self.created) - names):
                wrong.append(f"created topics are gone: {missing[:5]}")
        return wrong

    def _go_on(
        self, port: int, work: Callable[[Connection, random.Random], None], rng: random.Random
    ) -> None:
        try:
            with Connection(port, timeout_s=10.0) as client:
                while not self._is_stopped.is_set():
                    work(client, rng)
        except OSError:
            return  # the power is gone, and the broker with it

    def _commit_next(self, client: Connection, rng: random.Random) -> None:
        self._commit(client, self.committed + 1)
        self._is_stopped.wait(rng.random() * 0.02)

    def _commit(self, client: Connection, offset: int) -> None:
        partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": "m"}
        topic = {"name": self.topics[0].name, "partitions": [partition]}
        for _ in range(200):
            answer = client.ask(
                ApiKey.OFFSET_COMMIT,
                group_id=self.GROUP,
                generation_id_or_member_epoch=-1,
                member_id="",
                topics=[topic],
            )
            error = answer.topics[0].partitions[0].error_code
            if error == ErrorCode.NONE:
                if not self.power_goes.is_set():
                    self.committed = offset
                return
            if error in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
                client.ask(ApiKey.FIND_COORDINATOR, key=self.GROUP, key_type=0)
            self._is_stopped.wait(0.05)
        raise ConnectionError(f"the commit of {offset}: {error!r}")

    def _committed(self, client: Connection) -> int:
        for _ in range(200):
            topics = [{"name": self.topics[0].name, "partition_indexes": [0]}]
            answer = client.ask(ApiKey.OFFSET_FETCH, group_id=self.GROUP, topics=topics, require_stable=False)
            if answer.error_code == ErrorCode.NONE and answer.topics:
                return int(answer.topics[0].partitions[0].committed_offset)
            threading.Event().wait(0.05)
        raise AssertionError(f"committed offsets cannot be read: {answer.error_code!r}")

    def _create_next(self, client: Connection, rng: random.Random) -> None:
        if len(self.created) < 20:
            self._create(client, name := f"created-{len(self.created)}-{rng.randrange(10**9)}", {})
            if not self.power_goes.is_set():
                self.created.append(name)
        self._is_stopped.wait(rng.random() * 0.3)

    def _create(self, client: Connection, name: str, configs: dict[str, str]) -> None:
        topic = {
            "name": name,
            "num_partitions": 1,
            "replication_factor": 1,
            "assignments": [],
            "configs": [{"name": key, "value": value} for key, value in configs.items()],
        }
        answer = client.ask(ApiKey.CREATE_TOPICS, topics=[topic], timeout=_TIMEOUT_MS)
        if (error := answer.topics[0].error_code) != ErrorCode.NONE:
            raise ConnectionError(f"{name}: {error!r}: {answer.topics[0].error_message}")

    def _move(self, client: Connection, rng: random.Random) -> None:
        """A topic to the other log directory, and the next one back."""
        self._moves += 1
        moved = {"name": rng.choice(self.topics).name, "partitions": [0]}
        path = self._directories[self._moves % len(self._directories)]
        client.ask(ApiKey.ALTER_REPLICA_LOG_DIRS, dirs=[{"path": path, "topics": [moved]}])
        self._is_stopped.wait(rng.random() * 0.5)

"""Producers whose histories are recorded, each a process of its own, in three roles.

    python -m tests.chaos.producers CLIENT ROLE BOOTSTRAP TOPIC PARTITIONS HISTORY SEED

CLIENT and ROLE: ``confluent`` or ``aiokafka``, ``idempotent`` or ``transactional``; ``kafka-python``,
``plain`` (what fails is not tried again) or ``idempotent``. librdkafka is never plain: even without retries
it tries again after NOT_LEADER_OR_FOLLOWER, which a leader says that has appended and then resigned. SIGTERM:
what was sent is waited for, and the process ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from minikafka.testing.history import Kind, Outcome, Record
from tests.chaos.recording import (
    Recorder,
    ignore_passing_errors,
    now_ms,
    quiet_logger,
    tell_stacks_on_request,
)
from tests.chaos.surprises import Surprises

PAUSE_S = 0.05
"""Between sends."""
GIVE_UP_S = 30
"""A record that was not acknowledged in so long is not tried any more."""
AFTER_ERROR_S = 5
NEVER_MS = 2**31 - 1
"""An idempotent producer that gives a record up goes on in a new epoch, and librdkafka sends in it again what
was on its way to other partitions: that may be there twice then."""
TRANSACTION_TIMEOUT_MS = 20_000
ABORTED = 0.2
"""The share of transactions that are aborted."""
RECORDS_A_TRANSACTION_MAX = 6


class Producing:
    """What all producers share: what is sent next, and under which name."""

    def __init__(self, arguments: list[str]) -> None:
        self.role, self.bootstrap, self.topic, partitions, history, seed = arguments
        self.partitions = int(partitions)
        self.rng = random.Random(seed)
        self.name = Path(history).stem
        self.recorder = Recorder(Path(history), self.name)
        self.stop = threading.Event()
        self.surprises = Surprises()
        self._lives = 0
        self._number = 0
        self._transactions = 0
        self.process = self.name

    def lost_track(self) -> None:
        """After a failure the order of what was sent before and is sent later is not promised: the history
        goes on as another process's."""
        self._lives += 1
        self.process = f"{self.name}.{self._lives}"

    def next_record(self) -> Record:
        self._number += 1
        partition = self.rng.randrange(self.partitions)
        return Record(self.topic, partition, None, f"{self.name}-{self._number}")

    def next_transaction(self) -> str:
        self._transactions += 1
        return f"{self.name}-transaction-{self._transactions}"

    def sent(self, invoked_ms: float, record: Record, process: str, offset: int | None, **more: Any) -> None:
        known = None if offset is None or offset < 0 else offset
        told = Record(record.topic, record.partition, known, record.value)
        self.recorder.sent(invoked_ms, told, process=process, **more)
        if more.get("error") is not None and process == self.process:
            self.lost_track()


def by_confluent(producing: Producing) -> None:
    from confluent_kafka import KafkaError, KafkaException, Producer

    settings: dict[str, Any] = {
        "bootstrap.servers": producing.bootstrap,
        "acks": "all",
        "linger.ms": 5,
        "request.timeout.ms": 3_000,
        "socket.timeout.ms": 5_000,
        "reconnect.backoff.max.ms": 500,
        "topic.metadata.refresh.interval.ms": 2_000,
        "enable.idempotence": True,
        "message.timeout.ms": NEVER_MS,
        "error_cb": ignore_passing_errors,
    }
    logger = quiet_logger()
    # By an abort, and their sequence numbers go to the records that follow. If one is in a log already, the
    # next is told as written, and is not (``tests.integration.test_raised_epochs``). Another producer has
    # another epoch.
    purged: list[Record] = []

    def send(producer: Producer, transaction: str = "") -> None:
        record, process, invoked_ms = producing.next_record(), producing.process, now_ms()

        def delivered(error: Any, message: Any) -> None:
            offset = None if error is not None else message.offset()
            if error is not None and error.code() == KafkaError._PURGE_QUEUE:
                purged.append(record)
            producing.sent(invoked_ms, record, process, offset, transaction=transaction, error=error)

        try:
            producer.produce(
                record.topic, str(record.value).encode(), partition=record.partition, on_delivery=delivered
            )
        except BufferError:
            producer.poll(1)
        except KafkaException as error:  # a fatal state, for one
            producing.sent(invoked_ms, record, process, None, transaction=transaction, error=error)

    if producing.role != "transactional":
        while not producing.stop.is_set():
            producer = Producer(settings, logger=logger)
            try:
                while not producing.stop.is_set():
                    send(producer)
                    _serve(producer)
                _end(producer, GIVE_UP_S * 2)
            except KafkaException as error:  # fatal: it takes nothing more
                print(f"{producing.name}: begins again after {error}", file=sys.stderr)
                producing.lost_track()
                _end(producer, AFTER_ERROR_S)
        return

    settings |= {
        "transactional.id": producing.name,
        "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
        "message.timeout.ms": TRANSACTION_TIMEOUT_MS,
    }
    while not producing.stop.is_set():
        producer = Producer(settings, logger=logger)
        purged.clear()
        try:
            producer.init_transactions(GIVE_UP_S)
            while not producing.stop.is_set() and not purged:
                _confluent_transaction(producing, producer, send)
        except Exception as error:  # noqa: BLE001 told, and not outlived too often
            if not isinstance(error, KafkaException):
                producing.surprises.note("a transaction", error)
            print(f"{producing.name}: begins again after {error}", file=sys.stderr)
            producing.lost_track()
            with contextlib.suppress(KafkaException):
                producer.purge()
                producer.flush(AFTER_ERROR_S)


def _end(producer: Any, timeout_s: float) -> None:
    """Wait for what is on its way. What is left then may be in a log: its callbacks write it down as
    unknown."""
    if left := producer.flush(timeout_s):
        print(f"gives up {left} records that are on their way", file=sys.stderr)
        producer.purge()
        producer.flush(AFTER_ERROR_S)


def _serve(producer: Any) -> None:
    """Tell what was delivered, for the pause between sends: a ``poll`` ends with the first that it has."""
    until = time.monotonic() + PAUSE_S
    while (left := until - time.monotonic()) > 0:
        producer.poll(left)


def _confluent_transaction(producing: Producing, producer: Any, send: Any) -> None:
    from confluent_kafka import KafkaException

    transaction, invoked_ms = producing.next_transaction(), now_ms()
    process = producing.process
    producer.begin_transaction()
    producing.recorder.write(Kind.BEGIN, invoked_ms, Outcome.OK, process=process, transaction=transaction)
    for _ in range(producing.rng.randint(1, RECORDS_A_TRANSACTION_MAX)):
        send(producer, transaction)
        _serve(producer)
    commits = producing.rng.random() >= ABORTED
    kind = Kind.COMMIT_TRANSACTION if commits else Kind.ABORT_TRANSACTION
    invoked_ms = now_ms()
    asked_to_commit = False
    while True:
        try:
            if kind is Kind.COMMIT_TRANSACTION:
                asked_to_commit = True
                producer.commit_transaction(GIVE_UP_S)
            else:
                producer.abort_transaction(GIVE_UP_S)
        except KafkaException as error:
            failure = error.args[0]
            if failure.txn_requires_abort() and kind is Kind.COMMIT_TRANSACTION:
                kind, asked_to_commit = Kind.ABORT_TRANSACTION, False  # it says that it is not committed
                continue
            if failure.retriable() and now_ms() - invoked_ms < 4 * GIVE_UP_S * 1000:
                continue
            ended = Kind.COMMIT_TRANSACTION if asked_to_commit else kind
            producing.recorder.write(
                ended, invoked_ms, Outcome.INFO, process=process, transaction=transaction, error=str(failure)
            )
            raise
        producing.recorder.write(kind, invoked_ms, Outcome.OK, process=process, transaction=transaction)
        return


async def by_aiokafka(producing: Producing) -> None:
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import KafkaError

    settings: dict[str, Any] = {
        "bootstrap_servers": producing.bootstrap,
        "acks": "all",
        "request_timeout_ms": 5_000,
        "metadata_max_age_ms": 2_000,
        "enable_idempotence": True,
    }
    in_flight: set[asyncio.Task[None]] = set()
    # A record has failed. Those behind it would, too, for their sequence numbers: another producer has to
    # begin.
    is_out_of_step = asyncio.Event()

    def failed(error: BaseException, invoked_ms: float, record: Record, process: str, **more: Any) -> None:
        producing.sent(invoked_ms, record, process, None, error=repr(error), **more)
        is_out_of_step.set()

    async def send(producer: AIOKafkaProducer, transaction: str = "") -> None:
        record, process, invoked_ms = producing.next_record(), producing.process, now_ms()
        more: dict[str, Any] = {"transaction": transaction}
        try:
            sending = await producer.send(
                record.topic, str(record.value).encode(), partition=record.partition
            )
        except Exception as error:  # noqa: BLE001 told, and not outlived too often
            failed(error, invoked_ms, record, process, **more)
            if not isinstance(error, KafkaError):
                producing.surprises.note("send", error)
            return

        async def acknowledged() -> None:
            try:
                told = await sending
            except BaseException as error:  # whatever it is, the record may be in a log
                failed(error, invoked_ms, record, process, **more)
                if not isinstance(error, Exception):
                    raise
                if not isinstance(error, KafkaError):
                    producing.surprises.note("an answer", error)
            else:
                producing.sent(invoked_ms, record, process, told.offset, **more)

        task = asyncio.create_task(acknowledged())
        in_flight.add(task)
        task.add_done_callback(in_flight.discard)

    if producing.role == "transactional":
        settings |= {"transactional_id": producing.name, "transaction_timeout_ms": TRANSACTION_TIMEOUT_MS}
    while not producing.stop.is_set():
        producer = AIOKafkaProducer(**settings)
        is_out_of_step.clear()
        try:
            await producer.start()
            while not producing.stop.is_set():
                if producing.role == "transactional":
                    await _aiokafka_transaction(producing, producer, send, in_flight)
                else:
                    await send(producer)
                    if is_out_of_step.is_set():
                        break
                await asyncio.sleep(PAUSE_S)
        except Exception as error:  # noqa: BLE001 told, and not outlived too often
            if not isinstance(error, KafkaError):
                producing.surprises.note("a producer", error)
            print(f"{producing.name}: begins again after {error!r}", file=sys.stderr)
            producing.lost_track()
            await asyncio.sleep(0.5)
        finally:
            await _aiokafka_end(producing, producer, in_flight)


async def _aiokafka_end(producing: Producing, producer: Any, in_flight: set[Any]) -> None:
    """Wait for what is on its way; what is left then is written down as unknown, for it may be in a log."""
    from aiokafka.errors import KafkaError

    if in_flight:
        await asyncio.wait(set(in_flight), timeout=GIVE_UP_S)
    try:
        await asyncio.wait_for(producer.stop(), GIVE_UP_S)
    except (KafkaError, TimeoutError):
        pass
    except Exception as error:  # noqa: BLE001 told, and not outlived too often
        producing.surprises.note("stop", error)
    left = set(in_flight)
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


async def _aiokafka_transaction(producing: Producing, producer: Any, send: Any, in_flight: set[Any]) -> None:
    transaction, process, write = producing.next_transaction(), producing.process, producing.recorder.write
    invoked_ms = now_ms()
    await producer.begin_transaction()
    write(Kind.BEGIN, invoked_ms, Outcome.OK, process=process, transaction=transaction)
    for _ in range(producing.rng.randint(1, RECORDS_A_TRANSACTION_MAX)):
        await send(producer, transaction)
        await asyncio.sleep(PAUSE_S)
    commits = producing.rng.random() >= ABORTED
    kind = Kind.COMMIT_TRANSACTION if commits else Kind.ABORT_TRANSACTION
    invoked_ms = now_ms()
    try:
        await (producer.commit_transaction() if commits else producer.abort_transaction())
    except BaseException as error:
        write(kind, invoked_ms, Outcome.INFO, process=process, transaction=transaction, error=repr(error))
        raise
    write(kind, invoked_ms, Outcome.OK, process=process, transaction=transaction)
    if in_flight:
        await asyncio.wait(set(in_flight))


def by_kafka_python(producing: Producing) -> None:
    from kafka import KafkaProducer
    from kafka.errors import KafkaError

    settings: dict[str, Any] = {
        "bootstrap_servers": producing.bootstrap.split(","),
        "acks": "all",
        "request_timeout_ms": 5_000,
        "metadata_max_age_ms": 2_000,
        "delivery_timeout_ms": GIVE_UP_S * 1000,
        "enable_idempotence": producing.role == "idempotent",
    }
    if producing.role == "plain":
        settings |= {"retries": 0, "max_in_flight_requests_per_connection": 1}
    while not producing.stop.is_set():
        try:
            producer = KafkaProducer(**settings)
        except Exception as error:  # noqa: BLE001 told, and not outlived too often
            if not isinstance(error, KafkaError):  # it reaches no broker yet
                producing.surprises.note("a producer", error)
            print(f"{producing.name}: begins again after {error!r}", file=sys.stderr)
            continue
        while not producing.stop.is_set():
            record, process, invoked_ms = producing.next_record(), producing.process, now_ms()
            try:
                sending = producer.send(record.topic, str(record.value).encode(), partition=record.partition)
                told = sending.get(GIVE_UP_S * 2)
            except Exception as error:  # noqa: BLE001 told, and not outlived too often
                producing.sent(invoked_ms, record, process, None, error=repr(error))
                if not isinstance(error, KafkaError):
                    producing.surprises.note("send", error)
                if producing.role == "idempotent":
                    break  # its sequence numbers may be out of step
            else:
                producing.sent(invoked_ms, record, process, told.offset)
            time.sleep(PAUSE_S)
        try:
            producer.close(timeout=GIVE_UP_S)
        except Exception as error:  # noqa: BLE001 told, and not outlived too often
            producing.surprises.note("close", error)


def main() -> None:
    client, *arguments = sys.argv[1:]
    producing = Producing(arguments)
    tell_stacks_on_request()
    signal.signal(signal.SIGTERM, lambda *_: producing.stop.set())
    match client:
        case "confluent":
            by_confluent(producing)
        case "aiokafka":
            logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
            asyncio.run(by_aiokafka(producing))
        case "kafka-python":
            logging.getLogger("kafka").setLevel(logging.CRITICAL)
            by_kafka_python(producing)
        case _:
            raise SystemExit(f"there is no client {client}")
    producing.recorder.close()


if __name__ == "__main__":
    main()

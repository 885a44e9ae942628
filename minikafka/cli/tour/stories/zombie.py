"""Exactly-once: two instances with one transactional id, of which one does not know that it is replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from minikafka.cli.tour.stage import ADMIN_TIMEOUT_MS, Setup, Stage
from minikafka.cli.transactions import TransactionAdmin
from minikafka.errors import ErrorCode, KafkaError
from minikafka.testing.simulation.client import PASSING, RETRY_PAUSE_MS, SimulatedClient, make_batch
from minikafka.testing.simulation.scenarios.transactions import TransactionalProducer

SETUP = Setup(
    config={"transaction.state.log.num.partitions": 1, "offsets.topic.num.partitions": 1},
)

ORDERS, PAYMENTS = "orders", "payments"
GROUP = "billing"
TRANSACTIONAL_ID = "billing-0"


async def tell(stage: Stage) -> None:
    stage.shown = [await stage.new_topic(ORDERS), await stage.new_topic(PAYMENTS)]
    await stage.client.deliver(ORDERS, 0, make_batch([b"order 7"]))
    first = Instance(stage)
    await first.producer.begin()
    order = await first.next_order()
    await first.pay(order)
    picture = stage.show(
        "An instance of billing reads order 7 and writes its payment, in a transaction",
        f"""The instance consumes orders, and for each writes a payment; its position in orders goes into
        the same transaction. It has the transactional id {TRANSACTIONAL_ID}, for which the coordinator
        gave it a producer id and an epoch (p, in the picture). The transaction is open: the last stable
        offset (LSO) stands before its first record, and read_committed consumers read up to there.""",
        facts=[f"first instance: producer id/epoch {first.name}", *await _seen(stage)],
    )
    payments = picture.replica(1, f"{PAYMENTS}-0").log
    stage.check(payments is not None and payments.stable == 0, "the LSO is 0")
    await _second_takes_over(stage, first)


async def _second_takes_over(stage: Stage, first: Instance) -> None:
    second = Instance(stage)
    await second.producer.begin()
    await stage.until(lambda: _stable(stage) == 2, "the open transaction was aborted")
    stage.show(
        "The instance stalls, and a second one starts with the same transactional id",
        """A long garbage collection, a sleeping laptop: no broker can tell that from death. The second
        instance asks for the producer id (InitProducerId). The coordinator raises the epoch, which fences
        the first one, and aborts the transaction that it finds open: an ABORT marker is in the log, and
        the LSO moves on. Consumers with read_committed skip the payment before it.""",
        facts=[f"second instance: producer id/epoch {second.name}", *await _seen(stage)],
    )
    order = await second.next_order()
    stage.check(order == b"order 7", "order 7 comes again")
    await second.pay(order)
    await second.producer.send_offsets(GROUP, {0: 1}, topic=ORDERS)
    await second.producer.end(commit=True)
    await stage.until(lambda: _stable(stage) == 4, "the transaction is committed")
    stage.show(
        "The second instance gets order 7 again, pays it, and commits",
        """The group's position was part of the aborted transaction, so it is still before order 7. Now
        the payment and the position are committed by the same markers: both hold, or neither.""",
        facts=await _seen(stage),
    )
    await _zombie_wakes(stage, first)


async def _zombie_wakes(stage: Stage, first: Instance) -> None:
    written = await _told(first.pay(b"order 7"))
    committed = await _told(first.producer.end(commit=True))
    stage.check(written is ErrorCode.INVALID_PRODUCER_EPOCH, "the zombie's record is refused")
    stage.check(committed is not ErrorCode.NONE, "the zombie's commit is refused")
    picture = stage.show(
        "The first instance wakes up and goes on where it was: a zombie, and fenced",
        """It does not know that time has passed. What it writes is refused by the partition's leader,
        which has seen a newer epoch of this producer id; its commit is refused by the coordinator. Both
        without asking anybody: the epoch in the request is enough.""",
        facts=[
            f"the zombie's produce was told: {written.name}",
            f"the zombie's EndTxn was told: {committed.name}",
            *await _seen(stage),
        ],
    )
    stage.check(picture.replica(1, f"{PAYMENTS}-0").log is not None, "payments has a log")
    values = [value for _, value in await stage.client.read_all(PAYMENTS, 0, read_committed=True)]
    stage.check(values == [b"pay 7"], "order 7 is paid once")


class Instance:
    """One of the application."""

    def __init__(self, stage: Stage) -> None:
        self._client = SimulatedClient(stage.addresses, client_id=GROUP)
        self.producer = TransactionalProducer(self._client, TRANSACTIONAL_ID, partitions=1, topic=PAYMENTS)

    @property
    def name(self) -> str:
        """Its producer id and epoch, as a picture has them."""
        return "/".join(map(str, self.producer.producer))

    async def next_order(self) -> bytes:
        """What is at the group's position."""
        fetched = await self._client.fetch(ORDERS, 0, await position(self._client), read_committed=True)
        return fetched.records[0].value or b""

    async def pay(self, order: bytes) -> None:
        """A record in the transaction."""
        await self.producer.send(0, b"pay " + order.removeprefix(b"order "))


async def position(client: SimulatedClient) -> int:
    """Where the group reads on."""
    while True:
        try:
            coordinator = await client.find_coordinator(GROUP)
            return max(0, (await client.fetch_positions(coordinator, GROUP, ORDERS, [0]))[0])
        except KafkaError as error:
            if error.code not in (*PASSING, ErrorCode.UNSTABLE_OFFSET_COMMIT):
                raise
            await asyncio.sleep(RETRY_PAUSE_MS / 1000)


def _stable(stage: Stage) -> int:
    log = stage.look().replica(1, f"{PAYMENTS}-0").log
    return -1 if log is None else log.stable


async def _told(work: Awaitable[None]) -> ErrorCode:
    """The error that a client gets."""
    try:
        await work
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


async def _seen(stage: Stage) -> list[str]:
    """What the coordinator says, and what consumers read."""
    async with TransactionAdmin(stage.addresses, client_id="operator", timeout_ms=ADMIN_TIMEOUT_MS) as admin:
        state = await admin.describe(TRANSACTIONAL_ID)
    lines = [
        f"coordinator, broker {state.coordinator}: {TRANSACTIONAL_ID} is at producer id/epoch "
        f"{state.producer_id}/{state.producer_epoch}, {state.state}"
    ]
    for isolation in ("read_uncommitted", "read_committed"):
        found = await stage.client.read_all(PAYMENTS, 0, read_committed=isolation == "read_committed")
        values = ", ".join((value or b"").decode() for _, value in found) or "nothing"
        lines.append(f"a consumer of {PAYMENTS} with {isolation} has read: {values}")
    return [*lines, f"the group {GROUP} reads {ORDERS} on at {await position(stage.client)}"]

"""``RestrictedClient``: it logs in with a password that changes, and may write to ``TOPIC`` or not.

Checked: what was denied is not there (a history shows it); it is told nothing but that it may not, or what
passes; at the end rights that are given work, and rights that are taken away end its writing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import AuthenticationFailed, BrokerUnavailable
from minikafka.network.client_security import client_security
from minikafka.testing.history.operations import Kind, Record
from minikafka.testing.history.recorder import at_offsets, text
from minikafka.testing.simulation.client import PASSING, SimulatedClient, make_batch
from minikafka.testing.simulation.scenarios.plan import RESTRICTED, TOPIC, Action, ActionKind
from minikafka.testing.simulation.scenarios.settings import MECHANISM, SECURE_PORT, USER, insist, password
from minikafka.testing.simulation.scenarios.waiting import until

if TYPE_CHECKING:
    from minikafka.testing.simulation.scenarios.swarm import SwarmRun

PAUSE_MS = 250
PASSWORDS = 2
KNOWN_EVERYWHERE_MS = 3_000
"""Rules travel to the brokers by the store, in milliseconds when all is well."""


class RestrictedClient:
    """A plain producer, until the run stops."""

    def __init__(self, run: SwarmRun) -> None:
        self._run = run
        self._name = "restricted"
        self._rng = run.simulation.rng(self._name)
        self._password = 0
        self._client = self._log_in()
        self._is_revoked = False
        self.written = self.denied = 0

    def _log_in(self) -> SimulatedClient:
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        security = client_security(
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": MECHANISM,
                "sasl.jaas.config": (
                    f'{module} required username="{USER}" password="{password(self._password)}";'
                ),
            }
        )
        addresses = [(host, SECURE_PORT) for host, _ in self._run.addresses]
        return SimulatedClient(addresses, client_id=self._name, security=security)

    async def work(self) -> None:
        """Raises KafkaError: another error than of rights; AssertionError."""
        count = 0
        while not self._run.is_stopping:
            partition = self._rng.randrange(self._run.plan.partitions)
            try:
                await self._send(partition, b"%d-%d" % (RESTRICTED, count))
            except AuthenticationFailed:
                self._password = (self._password + 1) % PASSWORDS
                await self._client.close()
                self._client = self._log_in()
            except BrokerUnavailable:
                self._client.forget_leader(TOPIC, partition)
            except KafkaError as error:
                self._client.forget_leader(TOPIC, partition)
                if error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    self.denied += 1
                elif error.code not in PASSING:
                    raise
            count += 1
            await asyncio.sleep(PAUSE_MS / 1000)

    async def _send(self, partition: int, value: bytes) -> None:
        """Once: what was denied stays so."""
        may_write = not self._is_revoked
        records = (Record(TOPIC, partition, None, text(value)),)
        async with self._run.recorder.operation(self._name, Kind.SEND, records=records) as sent:
            sent.records = at_offsets(
                records, await self._client.produce(TOPIC, partition, make_batch([value]))
            )
        assert may_write, f"{USER} may not write to {TOPIC}, and has written {value!r}"
        self.written += 1

    async def give_rights(self) -> None:
        """To log in, and to write. Raises TimeoutError."""
        for kind in (ActionKind.SET_CREDENTIAL, ActionKind.GRANT):
            await insist(self._run, Action(after_ms=0, kind=kind))

    async def check(self) -> None:
        """When the faults are over. Raises TimeoutError, AssertionError."""
        run = self._run
        await self.give_rights()
        before = self.written
        await until(lambda: self.written > before, f"{USER} may write, and does")
        await insist(run, Action(after_ms=0, kind=ActionKind.REVOKE))
        await asyncio.sleep(KNOWN_EVERYWHERE_MS / 1000)
        self._is_revoked = True
        denied = self.denied
        await until(lambda: self.denied > denied, f"{USER} may not write, and is told so")

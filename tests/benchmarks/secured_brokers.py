"""Secured brokers for ``bench_security``: minikafka, and Apache Kafka with the same properties.

Each has a listener of every security protocol, certificates of one authority (ECDSA, P-256), TLS 1.3 only,
and a user who logs in by SCRAM-SHA-512. Everybody on the listener without security is a super user.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from minikafka.loadgen import targets
from tests.benchmarks.broker import COMMAND, NO_HTTP
from tests.benchmarks.logins import HOST, ITERATIONS
from tests.integration.support.process import BrokerProcess
from tests.support.certificates import CertificateAuthority
from tests.support.ports import free_port

KAFKA_VERSION = "4.4.0"
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
USER, PASSWORD = "alice", "alice-secret"
LOGIN_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
ANSWER_S = 60.0
ACLS_A_REQUEST = 1_000


class ApacheKafka(BrokerProcess):
    """One KRaft node with the heap and the options of a release's scripts."""

    def arguments(self) -> list[str]:
        controller = free_port()
        settings = targets.node_settings(1, self.port, [controller], data=self.data_dir) | self.properties
        settings["listeners"] += f",CONTROLLER://{HOST}:{controller}"
        settings["listener.security.protocol.map"] += ",CONTROLLER:PLAINTEXT"
        del settings["advertised.listeners"]
        config = self.data_dir.with_suffix(".properties")
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        java = ["java", *targets.JVM, "-cp", targets.class_path_of_maven(KAFKA_VERSION)]
        if not (self.data_dir / "meta.properties").exists():
            tool = ["kafka.tools.StorageTool", "format", "-t", targets.CLUSTER_ID, "-c", str(config)]
            done = targets.ended([*java, *tool], targets.FORMAT_DEADLINE_S)
            assert done.returncode == 0, done.stderr or done.stdout
        return [*java, "kafka.Kafka", str(config)]

    def _is_up(self) -> bool:
        return self._answers()


class SecuredBroker:
    """A broker process with its listeners."""

    def __init__(
        self,
        directory: Path,
        kind: type[BrokerProcess] = BrokerProcess,
        properties: Mapping[str, object] | None = None,
    ) -> None:
        directory.mkdir()
        self.ports = {protocol: free_port() for protocol in PROTOCOLS}
        authority = CertificateAuthority()
        self.ca = authority.write_pem(directory / "ca.pem")
        store = authority.issue("broker").write_pem(directory / "broker.pem")
        names = ",".join(f"{protocol}:{protocol}" for protocol in PROTOCOLS)
        asked = {
            "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in self.ports.items()),
            "listener.security.protocol.map": names,
            "inter.broker.listener.name": "PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": store,
            "ssl.enabled.protocols": "TLSv1.3",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "socket.listen.backlog.size": 1024,  # a crowd that waits for no SYN to be sent again
        } | {
            f"listener.name.{protocol.lower()}.scram-sha-512.sasl.jaas.config": LOGIN_MODULE
            for protocol in PROTOCOLS
            if protocol.startswith("SASL")
        }
        self.process = kind(
            directory / "data",
            port=self.ports["PLAINTEXT"],
            properties=asked | dict(properties or {}),
            command=[*COMMAND, NO_HTTP] if kind is BrokerProcess else None,
        )
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap("PLAINTEXT"), "log_level": 0})

    def start(self) -> None:
        """Until its user can log in. Raises AssertionError: it does not start."""
        self.process.start()
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, ITERATIONS)
        upsertion = UserScramCredentialUpsertion(USER, credential, PASSWORD.encode())
        self.admin.alter_user_scram_credentials([upsertion])[USER].result(ANSWER_S)

    @property
    def pid(self) -> int:
        return self.process.pid

    def bootstrap(self, protocol: str) -> str:
        return f"{HOST}:{self.ports[protocol]}"

    def create_topic(self, name: str) -> None:
        self.admin.create_topics([NewTopic(name, 1, 1)])[name].result(ANSWER_S)

    def client_settings(self) -> dict[str, Any]:
        """librdkafka's, for the listener with TLS."""
        return {"security.protocol": "SSL", "ssl.ca.location": str(self.ca)}

    def cipher(self) -> str:
        """Which cipher is agreed on by OpenSSL's defaults, which are those of librdkafka too."""
        context = ssl.create_default_context(cafile=self.ca)
        with (
            socket.create_connection((HOST, self.ports["SSL"])) as peer,
            context.wrap_socket(peer, server_hostname=HOST) as secured,
        ):
            agreed = secured.cipher()
            assert agreed is not None
            return f"{secured.version()} {agreed[0]}"

    def create_acls(self, count: int, topic: str) -> None:
        """The user may write to the topic; the other ACLs are about other topics, prefixes and groups, and a
        third of them are the user's too."""
        bindings = [acl(topic, USER, ResourceType.TOPIC, ResourcePatternType.LITERAL)]
        kinds = (
            (ResourceType.TOPIC, ResourcePatternType.LITERAL),
            (ResourceType.TOPIC, ResourcePatternType.PREFIXED),
            (ResourceType.GROUP, ResourcePatternType.LITERAL),
        )
        for number in range(count - 1):
            kind, pattern = kinds[number % 3]
            user = USER if number // 3 % 3 == 0 else f"user-{number % 100}"
            bindings.append(acl(f"other-{number}", user, kind, pattern))
        for at in range(0, count, ACLS_A_REQUEST):
            for made in self.admin.create_acls(bindings[at : at + ACLS_A_REQUEST]).values():
                made.result(ANSWER_S)


def acl(name: str, user: str, kind: ResourceType, pattern: ResourcePatternType) -> AclBinding:
    operation = AclOperation.WRITE if kind is ResourceType.TOPIC else AclOperation.READ
    return AclBinding(kind, name, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)


@contextlib.contextmanager
def running(
    directory: Path,
    kind: type[BrokerProcess] = BrokerProcess,
    properties: Mapping[str, object] | None = None,
) -> Iterator[SecuredBroker]:
    """One in a new directory; stopped at the end."""
    broker = SecuredBroker(directory, kind, properties)
    try:
        broker.start()
        yield broker
    finally:
        broker.process.kill()

"""Who logs in how, and with what: the cells of `test_security_matrix.py`, and each client's way to try one.

A trial writes a record and reads it back, or raises `Refused` with the words that the client has for it. A
client tries all its cells at the same time: what takes long in a refusal is the client's patience, not the
broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import json
import logging
import re
import ssl
import subprocess
import time
import uuid
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import aiokafka
import aiokafka.abc
import aiokafka.errors
import kafka
import kafka.errors
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from joserfc import jwt
from joserfc.jwk import RSAKey
from kafka.net.sasl.oauth import AbstractTokenProvider

from minikafka.config.properties import properties_line
from tests.integration.support import java
from tests.support.certificates import EXPIRED, CertificateAuthority

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = ("PLAIN", *SCRAM, "OAUTHBEARER")

WAIT_S = 30.0
"""For a record; a broker that lets a client in answers in milliseconds."""
PATIENCE_S = 3.0
"""For a refusal, of kafka-python, which tries again and again."""
AT_ONCE = 12

OPEN_TOPIC, CLOSED_TOPIC = "matrix", "for-others"
PASSWORDS = {"alice": "alice has one", "gone": "it was right once", "admin": "all may be done by"}


class Cell(NamedTuple):
    protocol: str
    mechanism: str
    """Empty without SASL."""
    credential: str
    """``right``, ``wrong``, ``expired``, or ``not allowed``: right, but no ACL lets it touch the topic."""

    def __str__(self) -> str:
        return " ".join(filter(None, self))

    @property
    def topic(self) -> str:
        return CLOSED_TOPIC if self.credential == "not allowed" else OPEN_TOPIC

    @property
    def is_refused_login(self) -> bool:
        return self.credential in ("wrong", "expired")

    @property
    def login(self) -> tuple[str, str]:
        """User and password, where the mechanism has them."""
        if self.credential == "expired":
            return "gone", PASSWORDS["gone"]
        return "alice", "guessed" if self.credential == "wrong" else PASSWORDS["alice"]


CREDENTIALS = ("right", "wrong", "expired", "not allowed")

WITHOUT: Mapping[tuple[str, str], str] = {
    ("PLAINTEXT", "wrong"): "nothing is shown, so nothing can be wrong",
    ("PLAINTEXT", "expired"): "nothing is shown, so nothing can expire",
    ("PLAIN", "expired"): "the passwords are a property of the listener, and have no end",
}
"""(Protocol or mechanism, credential) → why there is no such cell for any client. SCRAM's ``expired`` is a
credential that was there and has been removed."""

NO_TOKEN = "kcat has no option for a token: librdkafka makes an unsigned one, or asks an endpoint"
OLD_SCRAM = (
    "librdkafka < 2.6.1 has another nonce in SCRAM's last message than it was given, which a broker that "
    "checks it refuses (CVE-2024-56128)"
)


def cannot(client: str, mechanism: str) -> str:
    """Why a client does not get in with a mechanism, whatever it has; empty: it does."""
    if client != "kcat":
        return ""
    if mechanism == "OAUTHBEARER":
        return NO_TOKEN
    return OLD_SCRAM if mechanism in SCRAM and kcats_librdkafka() < (2, 6, 1) else ""


@functools.cache
def kcats_librdkafka() -> tuple[int, ...]:
    text = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"librdkafka (\d+)\.(\d+)\.(\d+)", text)
    assert version is not None, text
    return tuple(map(int, version.groups()))


def all_cells() -> list[Cell]:
    pairs = [(protocol, "") for protocol in PROTOCOLS[:2]]
    pairs += [(protocol, mechanism) for protocol in PROTOCOLS[2:] for mechanism in MECHANISMS]
    return [
        Cell(protocol, mechanism, credential)
        for protocol, mechanism in pairs
        for credential in CREDENTIALS
        if (mechanism or protocol, credential) not in WITHOUT
    ]


class Refused(Exception):
    """In the client's own words."""


class Keys:
    """What clients and brokers are given: stores as PEM files, and tokens as files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        authority = CertificateAuthority()
        self.authority = authority.write_pem(directory / "authority.pem")
        self.broker = authority.issue("broker").write_pem(directory / "broker.pem")
        self._clients = {
            "right": authority.issue("alice").write_pem(directory / "alice.pem"),
            "wrong": CertificateAuthority("Another").issue("alice").write_pem(directory / "stranger.pem"),
            "expired": authority.issue("alice", valid=EXPIRED).write_pem(directory / "expired.pem"),
        }
        issuer = RSAKey.generate_key(2048, {"kid": "issuer"})
        stranger = RSAKey.generate_key(2048, {"kid": "issuer"})
        self.jwks = directory / "jwks.json"
        self.jwks.write_text(json.dumps({"keys": [issuer.as_dict(private=False)]}))
        for name, key, lifetime_s in (
            ("right", issuer, 600),
            ("wrong", stranger, 600),
            ("expired", issuer, -60),
        ):
            now = int(time.time())
            claims = {
                "sub": "alice",
                "aud": "kafka",
                "iat": now - 1000,
                "exp": now + lifetime_s,
                "scope": "all",
            }
            self._token(name).write_text(jwt.encode({"alg": "RS256", "kid": "issuer"}, claims, key))

    def _token(self, credential: str) -> Path:
        return self.directory / f"{credential}.jwt"

    @staticmethod
    def _shown(cell: Cell) -> str:
        return "right" if cell.credential == "not allowed" else cell.credential

    def token_file(self, cell: Cell) -> Path:
        return self._token(self._shown(cell))

    def token(self, cell: Cell) -> str:
        return self.token_file(cell).read_text()

    def certificate(self, cell: Cell) -> Path:
        """Of the listener SSL, which requires one."""
        return self._clients[self._shown(cell)]


class Trial(NamedTuple):
    """A cell, where it is tried, and the value of the record."""

    cell: Cell
    bootstrap: str
    keys: Keys
    value: str


Outcome = tuple[str, str]
"""``read`` with the value, or ``refused`` with the client's words."""


def librdkafka(trial: Trial) -> dict[str, Any]:
    cell, keys = trial.cell, trial.keys
    config: dict[str, Any] = {
        "bootstrap.servers": trial.bootstrap,
        "security.protocol": cell.protocol,
        "topic.metadata.refresh.interval.ms": 500,
    }
    if cell.protocol.endswith("SSL"):
        config["ssl.ca.location"] = str(keys.authority)
    if cell.protocol == "SSL":
        config |= dict.fromkeys(("ssl.key.location", "ssl.certificate.location"), str(keys.certificate(cell)))
    if cell.mechanism:
        config["sasl.mechanism"] = cell.mechanism
        if cell.mechanism != "OAUTHBEARER":
            config["sasl.username"], config["sasl.password"] = cell.login
    return config


def by_confluent(trial: Trial) -> str:
    errors: list[KafkaError] = []
    config = librdkafka(trial) | {"error_cb": errors.append, "log_level": 0}
    if trial.cell.mechanism == "OAUTHBEARER":
        config["oauth_cb"] = lambda _: (trial.keys.token(trial.cell), time.time() + 600)
    producer = Producer(config)
    offsets: list[int | None] = []

    def answered(error: KafkaError | None, message: Any) -> None:
        if error is None:
            offsets.append(message.offset())
        else:
            errors.append(error)

    fatal = {
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    }
    try:
        producer.produce(trial.cell.topic, trial.value.encode(), partition=0, on_delivery=answered)
    except KafkaException as refused:  # it has had the topic's metadata by then
        errors.append(refused.args[0])
    deadline = time.monotonic() + WAIT_S
    while not offsets:
        producer.flush(0.1)
        if any(error.code() in fatal for error in errors) or time.monotonic() > deadline:
            producer.purge()
            raise Refused("; ".join(str(error) for error in errors) or "no answer")
    consumer = Consumer(config | {"group.id": "matrix", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(trial.cell.topic, 0, offsets[0] or 0)])
        message = consumer.poll(WAIT_S)
        if message is None or message.error() is not None:
            raise Refused(str(message and message.error()))
        return (message.value() or b"").decode()
    except KafkaException as error:
        raise Refused(str(error)) from error
    finally:
        consumer.close()


class _Token(aiokafka.abc.AbstractTokenProvider):
    def __init__(self, text: str) -> None:
        self._text = text

    async def token(self) -> str:
        return self._text


def _context(trial: Trial) -> ssl.SSLContext | None:
    if not trial.cell.protocol.endswith("SSL"):
        return None
    context = ssl.create_default_context(cafile=trial.keys.authority)
    if trial.cell.protocol == "SSL":
        context.load_cert_chain(trial.keys.certificate(trial.cell))
    return context


def _python_settings(trial: Trial) -> dict[str, Any]:
    """Which aiokafka and kafka-python share."""
    settings: dict[str, Any] = {
        "bootstrap_servers": trial.bootstrap.split(","),
        "security_protocol": trial.cell.protocol,
        "ssl_context": _context(trial),
    }
    if trial.cell.mechanism:
        settings["sasl_mechanism"] = trial.cell.mechanism
        if trial.cell.mechanism != "OAUTHBEARER":
            settings["sasl_plain_username"], settings["sasl_plain_password"] = trial.cell.login
    return settings


async def by_aiokafka(trial: Trial) -> str:
    settings = _python_settings(trial)
    if trial.cell.mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = _Token(trial.keys.token(trial.cell))
    at = aiokafka.TopicPartition(trial.cell.topic, 0)
    producer = aiokafka.AIOKafkaProducer(**settings, request_timeout_ms=int(WAIT_S * 1000))
    consumer = aiokafka.AIOKafkaConsumer(**settings)
    try:
        await producer.start()
        written = await producer.send_and_wait(at.topic, trial.value.encode(), partition=0)
        await consumer.start()
        consumer.assign([at])
        consumer.seek(at, written.offset)
        return (await asyncio.wait_for(consumer.getone(), WAIT_S)).value.decode()
    except aiokafka.errors.KafkaError as error:
        raise Refused(str(error)) from error
    finally:
        await producer.stop()
        await consumer.stop()


class _KafkaPythonToken(AbstractTokenProvider):
    def __init__(self, text: str) -> None:
        self._text = text

    def token(self) -> str:
        return self._text

    def extensions(self) -> dict[str, str]:
        return {}


def by_kafka_python(trial: Trial) -> str:
    patience_ms = int(1000 * (PATIENCE_S if trial.cell.is_refused_login else WAIT_S))
    settings = _python_settings(trial) | {"bootstrap_timeout_ms": patience_ms}
    if trial.cell.mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = _KafkaPythonToken(trial.keys.token(trial.cell))
    at = kafka.TopicPartition(trial.cell.topic, 0)
    with contextlib.ExitStack() as stack:
        try:
            producer = kafka.KafkaProducer(**settings, max_block_ms=patience_ms)
            stack.callback(producer.close, timeout=0)
            written = producer.send(at.topic, trial.value.encode(), partition=0).get(WAIT_S)
            consumer = kafka.KafkaConsumer(**settings, consumer_timeout_ms=int(WAIT_S * 1000))
            stack.callback(consumer.close)
            consumer.assign([at])
            consumer.seek(at, written.offset)
            return str(next(consumer).value.decode())
        except kafka.errors.KafkaError as error:
            raise Refused(f"{type(error).__name__}: {error}") from error


def by_kcat(trial: Trial) -> str:
    settings = [f"-X{name}={value}" for name, value in librdkafka(trial).items()]
    patience = f"-Xmessage.timeout.ms={WAIT_S * 1000:.0f}"

    def run(*arguments: str, lines: str = "") -> str:
        done = subprocess.run(
            ["kcat", "-t", trial.cell.topic, "-p", "0", *settings, *arguments],
            input=lines,
            capture_output=True,
            text=True,
            timeout=2 * WAIT_S,
            check=False,
        )
        if done.returncode:
            raise Refused(done.stderr)
        return done.stdout

    run("-P", patience, lines=f"{trial.value}\n")
    return next(line for line in run("-C", "-e", "-q", "-o", "beginning").splitlines() if line == trial.value)


def in_threads(attempt: Callable[[Trial], str], trials: Sequence[Trial]) -> list[Outcome]:
    def outcome(trial: Trial) -> Outcome:
        try:
            return "read", attempt(trial)
        except Refused as refused:
            return "refused", str(refused)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(outcome, trials))


def in_a_loop(trials: Sequence[Trial]) -> list[Outcome]:
    async def outcome(trial: Trial, places: asyncio.Semaphore) -> Outcome:
        async with places:
            try:
                return "read", await by_aiokafka(trial)
            except Refused as refused:
                return "refused", str(refused)

    async def all_of_them() -> list[Outcome]:
        places = asyncio.Semaphore(AT_ONCE)
        return list(await asyncio.gather(*(outcome(trial, places) for trial in trials)))

    outcomes = asyncio.run(all_of_them())
    with warnings.catch_warnings():
        # aiokafka does not wait until the other side has ended TLS: beside a slow broker its loop ends first.
        # What it leaves the garbage collector would find in whatever test it runs in.
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    return outcomes


def java_properties(trial: Trial) -> dict[str, str]:
    cell, keys = trial.cell, trial.keys
    config = {
        "matrix.topic": cell.topic,
        "matrix.value": trial.value,
        "bootstrap.servers": trial.bootstrap,
        "security.protocol": cell.protocol,
        "max.block.ms": f"{WAIT_S * 1000:.0f}",
        "auto.offset.reset": "none",
    }
    if cell.protocol.endswith("SSL"):
        config |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(keys.authority)}
    if cell.protocol == "SSL":
        config |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(keys.certificate(cell))}
    if not cell.mechanism:
        return config
    module = {"PLAIN": "plain.Plain", "OAUTHBEARER": "oauthbearer.OAuthBearer"}.get(
        cell.mechanism, "scram.Scram"
    )
    jaas = f"org.apache.kafka.common.security.{module}LoginModule required"
    if cell.mechanism == "OAUTHBEARER":
        config |= {
            "sasl.oauthbearer.token.endpoint.url": keys.token_file(cell).as_uri(),
            "sasl.login.callback.handler.class": "org.apache.kafka.common.security.oauthbearer."
            "OAuthBearerLoginCallbackHandler",
        }
    else:
        user, password = cell.login
        jaas += f' username="{user}" password="{password}"'
    return config | {"sasl.mechanism": cell.mechanism, "sasl.jaas.config": f"{jaas};"}


def in_one_jvm(class_path: str, trials: Sequence[Trial]) -> list[Outcome]:
    directory = trials[0].keys.directory
    files = []
    for number, trial in enumerate(trials):
        path = directory / f"cell-{number}.properties"
        path.write_text("".join(properties_line(name, text) for name, text in java_properties(trial).items()))
        files.append(str(path))
    urls = ",".join(sorted({trial.keys.token_file(trial.cell).as_uri() for trial in trials}))
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={urls}"
    output = java.run(class_path, "SecurityMatrix", *files, options=(allowed,))
    outcomes = [line.split("\t") for line in output.splitlines()]
    return [(what, text) for _, what, text in outcomes]


def try_all(
    client: str, cells: Sequence[Cell], bootstraps: Mapping[str, str], keys: Keys, class_path: str | None
) -> dict[Cell, Outcome]:
    """``bootstraps``: by protocol. The value is left empty where it is the one that was written."""
    trials = [Trial(cell, bootstraps[cell.protocol], keys, uuid.uuid4().hex) for cell in cells]
    outcomes = _try_all(client, trials, class_path)
    return {
        trial.cell: ("read", "") if outcome == ("read", trial.value) else outcome
        for trial, outcome in zip(trials, outcomes, strict=True)
    }


def _try_all(client: str, trials: Sequence[Trial], class_path: str | None) -> list[Outcome]:
    for noisy in ("aiokafka", "kafka"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    match client:
        case "confluent-kafka":
            return in_threads(by_confluent, trials)
        case "kafka-python":
            return in_threads(by_kafka_python, trials)
        case "kcat":
            return in_threads(by_kcat, trials)
        case "aiokafka":
            return in_a_loop(trials)
    assert class_path is not None
    return in_one_jvm(class_path, trials)

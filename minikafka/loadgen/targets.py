"""Targets of a run: addresses, or recipes that start brokers for it and stop them; and how an administrator
sees a target: is it there, its topics, its offsets.

| text | target |
|---|---|
| ``HOST:PORT``, several with commas | brokers that are there |
| ``minikafka`` | this installation's broker, as processes; ``minikafka:COMMAND`` runs that command instead |
| ``mock`` | librdkafka's mock cluster, in a process of its own |
| ``kafka:DIR`` | Apache Kafka from an unpacked release, KRaft |
| ``kafka:maven:VERSION`` | Apache Kafka by its Maven coordinates |

Every recipe keeps its data in a temporary directory that goes with it. Its processes listen on free local
ports, are there with their first answer, and are ended. Our own modules are processes of the same
interpreter, and the same package wherever it was imported from.

Apache Kafka is KRaft, combined controller and broker, with the default heap and settings of a release. From a
directory it is the release's own ``libs``; by Maven coordinates the jars are resolved by ``mvn`` and lie in
its repository. The JVM's options are those of ``kafka-server-start.sh`` and ``kafka-run-class.sh``: a heap of
1 GB, G1 with its pause goal. Logging goes to standard output, through whatever binding is there.

librdkafka's mock cluster has no controller, so its topics come into being when a producer asks for them, with
as many partitions as the mock gives them.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._metadata import ClusterMetadata
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from minikafka.errors import ConfigError, MinikafkaError
from minikafka.loadgen.messages import TopicOffsets
from minikafka.loadgen.station import REASONS, plain_reason
from minikafka.loadgen.workload import Kind, Workload

_logger = logging.getLogger(__name__)

ANSWER_S = 30.0
UNHEALTHY_ANSWER_S = 3.0
"""How long to wait for a target that is known to be unhealthy."""
LEADERS_S = 60.0
PAUSE_S = 0.05
MOCK_CLUSTER_ID = "mockCluster"
"""What the id of a mock cluster begins with."""

Answer = TypeVar("Answer")

_logger.addHandler(logging.NullHandler())
_logger.propagate = False

NOT_YET = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
)

PACKAGE_PARENT = Path(__file__).resolve().parents[2]

API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""ApiVersions version 0, correlation id 1, without a client id: every broker answers it first."""
ANSWER_TIMEOUT_S = 5.0
POLL_S = 0.005
"""How exactly the time of the first answer is known."""
STOP_S = 30.0
LOG_TAIL_LINES = 5

_given_out: set[int] = set()

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
MAVEN_DEADLINE_S = 900.0
FORMAT_DEADLINE_S = 60.0
JVM = (
    "-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true",
)  # fmt: skip
"""KAFKA_HEAP_OPTS and KAFKA_JVM_PERFORMANCE_OPTS, as the scripts of a release set them."""

_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>minikafka.bench</groupId><artifactId>kafka</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{version}</version>
    </dependency>
  </dependencies>
</project>
"""

START_DEADLINE_S = 120.0
MEMBERS_S = 60.0


class Target(msgspec.Struct, frozen=True):
    """Where the brokers are; ``pids`` when their processes can be looked at."""

    name: str
    bootstrap: str
    pids: tuple[int, ...] = ()
    security: dict[str, str] = {}
    """librdkafka's properties of TLS and SASL; a report has none of them."""


# As an administrator sees it
class TargetError(MinikafkaError):
    """The target does not answer, or refuses; the message is for the person who named it."""


class NotYetError(TargetError):
    """The target refuses what it may do in a moment."""


class Cluster:
    """A connection to the target's administration."""

    def __init__(
        self, bootstrap: str, *, timeout_s: float, security: Mapping[str, str] | None = None
    ) -> None:
        """Wait for the first answer. Raises TargetError: none within ``timeout_s``, and why, or the login is
        refused, which waiting does not mend."""
        self.bootstrap = bootstrap
        self.is_in_doubt = False
        self._reason = ""
        self._refusal: str | None = None
        self._config: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "error_cb": self._on_error,
            "logger": _logger,
            "log_level": 0,
            **(security or {}),
        }
        self._admin = AdminClient(self._config)
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                self._admin.list_topics(timeout=max(min(1.0, deadline - time.monotonic()), 0.01))
                return
            except KafkaException as error:
                self._admin.poll(0)
                if self._refusal is not None:
                    raise TargetError(f"{bootstrap}: {self._refusal}") from None
                if time.monotonic() >= deadline:
                    reason = self._reason or error.args[0].str()
                    raise TargetError(
                        f"no broker answers at {bootstrap} within {timeout_s:g} s: {reason}"
                    ) from None

    def _on_error(self, error: KafkaError) -> None:
        if error.code() in REASONS:
            self._reason = plain_reason(error)
        if error.code() == KafkaError._AUTHENTICATION:
            self._refusal = f"authentication failed: {self._reason}"

    def topics_to_make(self, workload: Workload, names: Sequence[str]) -> list[str]:
        """Those that are not there yet. Raises TargetError: one that is only to be read is not there."""
        topics = self._metadata().topics
        missing = [name for name in names if name not in topics]
        if missing and workload.kind is Kind.CONSUME and not workload.records:
            raise TargetError(f"there is no topic {missing[0]}; --records N makes it, with N records to read")
        return missing

    def create_topics(self, workload: Workload, names: Sequence[str], missing: Sequence[str]) -> None:
        """Make those that are ``missing``, and wait until all have leaders.

        Raises:
            TargetError: the target refuses, or a topic has fewer partitions than asked for; some of those
                that were missing may have been made.
        """
        if _is_mock(self._metadata()):
            producer = Producer(self._config)
            for name in missing:
                self._asked(partial(producer.list_topics, name, timeout=self._answer_s))
        elif missing:
            new = [
                NewTopic(
                    name,
                    num_partitions=workload.partitions,
                    replication_factor=workload.replication_factor,
                    config=workload.topic_config,
                )
                for name in missing
            ]
            for name, future in self._admin.create_topics(new, request_timeout=self._answer_s).items():
                self._asked(future.result, f"cannot create the topic {name}")
        self._wait_for_leaders(workload, names)

    def _wait_for_leaders(self, workload: Workload, names: Sequence[str]) -> None:
        deadline = time.monotonic() + LEADERS_S
        while True:
            topics = self._metadata().topics
            found = [topics[name] for name in names if name in topics]
            if len(found) == len(names) and all(
                topic.error is None and all(each.leader >= 0 for each in topic.partitions.values())
                for topic in found
            ):
                break
            if time.monotonic() > deadline:
                raise TargetError(f"not all topics have leaders after {LEADERS_S:g} s")
            time.sleep(PAUSE_S)
        for topic in found:
            if len(topic.partitions) < workload.partitions:
                raise TargetError(
                    f"topic {topic.topic} has {len(topic.partitions)} partitions, "
                    f"fewer than --partitions {workload.partitions}"
                )

    def delete_topics(self, names: Sequence[str]) -> None:
        """Raises TargetError."""
        if names and not _is_mock(self._metadata()):
            for name, future in self._admin.delete_topics(
                list(names), request_timeout=self._answer_s
            ).items():
                self._asked(future.result, f"cannot delete the topic {name}")

    def offsets(self, names: Sequence[str], *, earliest: bool = False) -> TopicOffsets:
        """Where every partition ends (or begins). Raises TargetError.

        A broker may not know yet that it leads a topic that is new: it is asked again.
        """
        deadline = time.monotonic() + self._answer_s
        while True:
            try:
                return self._offsets_now(names, earliest=earliest)
            except NotYetError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(PAUSE_S)

    def _offsets_now(self, names: Sequence[str], *, earliest: bool) -> TopicOffsets:
        topics = self._metadata().topics
        if unknown := [name for name in names if name not in topics]:
            raise NotYetError(f"the target does not know the topic {unknown[0]}")
        spec = OffsetSpec.earliest() if earliest else OffsetSpec.latest()  # type: ignore[no-untyped-call]
        places = {
            TopicPartition(name, partition): spec for name in names for partition in topics[name].partitions
        }
        futures = self._admin.list_offsets(places, request_timeout=self._answer_s)
        found: TopicOffsets = {name: [0] * len(topics[name].partitions) for name in names}
        for place, future in futures.items():
            result = self._asked(future.result, f"cannot list offsets of {place.topic}")
            found[place.topic][place.partition] = result.offset
        return found

    def compacted(self, names: Sequence[str]) -> list[str]:
        """The topics among them of which a cleaner may take records; none where the target does not say."""
        try:
            if _is_mock(self._metadata()):
                return []
            asked = [ConfigResource(ResourceType.TOPIC, name) for name in names]
            futures = self._admin.describe_configs(asked, request_timeout=self._answer_s)
            found = {each.name: self._asked(future.result) for each, future in futures.items()}
        except TargetError:  # by old brokers, or ACLs: then every offset must be a record
            return []
        policies = {name: entries.get("cleanup.policy") for name, entries in found.items()}
        return [name for name in names if (policy := policies[name]) and "compact" in policy.value]

    @property
    def _answer_s(self) -> float:
        return UNHEALTHY_ANSWER_S if self.is_in_doubt else ANSWER_S

    def wait_for_brokers(self, count: int, *, deadline_s: float) -> None:
        """Until that many are in the cluster. Raises TargetError: they are not within ``deadline_s``."""
        deadline = time.monotonic() + deadline_s
        while (there := len(self._metadata().brokers)) < count:
            if time.monotonic() > deadline:
                raise TargetError(
                    f"only {there} of {count} brokers are in the cluster after {deadline_s:g} s"
                )
            time.sleep(PAUSE_S)

    def _metadata(self) -> ClusterMetadata:
        return self._asked(lambda: self._admin.list_topics(timeout=self._answer_s))

    def _asked(self, ask: Callable[[], Answer], what: str = "") -> Answer:
        try:
            return ask()
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            said = f"{what or self.bootstrap}: {reason.str()}"
            raise (NotYetError if reason.code() in NOT_YET else TargetError)(said) from None


def _is_mock(metadata: ClusterMetadata) -> bool:
    return str(metadata.cluster_id).startswith(MOCK_CLUSTER_ID)


# Processes
def module_command(module: str) -> list[str]:
    """What runs a module of ours; with ``module_environment``."""
    return [sys.executable, "-P", "-m", module]


def module_environment() -> dict[str, str]:
    """Ours, and a checkout that is not installed is found from any directory."""
    paths = [str(PACKAGE_PARENT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


class RecipeError(MinikafkaError):
    """A recipe cannot start its brokers; the message says why, with the end of their log."""


def free_ports(count: int) -> list[int]:
    """Ports without a listener, that were not given out before."""
    ports: list[int] = []
    with contextlib.ExitStack() as probes:
        while len(ports) < count:
            probe = probes.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
            if port not in _given_out:
                _given_out.add(port)
                ports.append(port)
    return ports


def answers(port: int) -> bool:
    """Whether a broker answers ApiVersions there."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_TIMEOUT_S) as connection:
            connection.sendall(API_VERSIONS)
            return len(connection.recv(4)) == 4
    except OSError:
        return False


def ended(command: Sequence[str], deadline_s: float) -> subprocess.CompletedProcess[str]:
    """Run a helper of a recipe to its end. Raises RecipeError: it does not come to one."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=deadline_s, check=False)
    except subprocess.TimeoutExpired:
        raise RecipeError(f"{command[0]} has not ended after {deadline_s:g} s") from None


class BrokerProcess:
    """One broker: a command, the port it will listen on, its log in a directory."""

    def __init__(
        self,
        command: Sequence[str],
        port: int,
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        holds_input: bool = False,
    ) -> None:
        """``environment``: None: this process's. ``holds_input``: it ends when its standard input does.

        Raises:
            RecipeError: it cannot be run.
        """
        self.port = port
        self._log = log
        self.started_s = time.perf_counter()
        with log.open("wb") as output:
            try:
                self.process = subprocess.Popen(
                    command,
                    env=environment,
                    stdin=subprocess.PIPE if holds_input else subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,  # Ctrl-C is for the generator, which stops its brokers
                )
            except OSError as error:
                raise RecipeError(f"cannot run {command[0]}: {error.strerror}") from None

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_until_up(self, deadline_s: float) -> float:
        """Seconds from its start to its first answer. Raises RecipeError: it ended, or takes too long."""
        while not answers(self.port):
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = self.process.wait(timeout=POLL_S)
                raise RecipeError(f"a broker ended with {status} while starting: {self.log_tail()}")
            if time.perf_counter() - self.started_s > deadline_s:
                raise RecipeError(f"a broker does not answer after {deadline_s:g} s: {self.log_tail()}")
        return time.perf_counter() - self.started_s

    def log_tail(self) -> str:
        lines = [line for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        return " | ".join(lines[-LOG_TAIL_LINES:]) or "it said nothing"

    def stop(self) -> None:
        """SIGTERM (or the end of its input), SIGKILL when that does not help."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        elif self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class RunningBrokers:
    """Brokers that a recipe has started; a context manager that stops them and removes their directory."""

    def __init__(self, directory: tempfile.TemporaryDirectory[str]) -> None:
        self._directory = directory
        self.path = Path(directory.name)
        self.processes: list[BrokerProcess] = []
        self.bootstrap = ""
        self.start_s = 0.0
        """From the first process's start until every broker had answered."""

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(each.pid for each in self.processes)

    def __enter__(self) -> RunningBrokers:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.processes:
            each.stop()
        self._directory.cleanup()

    def wait_until_up(self, deadline_s: float) -> None:
        """Raises RecipeError."""
        self.start_s = max(each.wait_until_up(deadline_s) for each in self.processes)


class KafkaRecipe(msgspec.Struct, frozen=True):
    """One of ``directory`` and ``version`` is set."""

    text: str
    directory: str = ""
    version: str = ""

    def start(self, running: RunningBrokers, brokers: int) -> None:
        """Format a directory for each node, and start it. Raises RecipeError."""
        if shutil.which("java") is None:
            raise RecipeError(f"target {self.text} needs java, and there is none")
        if self.version:
            class_path = class_path_of_maven(self.version)
        else:
            class_path = class_path_of_directory(Path(self.directory))
        ports, controllers = free_ports(brokers), free_ports(brokers)
        running.bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports)
        java = ["java", *JVM, "-cp", class_path]
        for node_id, port in enumerate(ports, start=1):
            config = running.path / f"{node_id}.properties"
            settings = node_settings(node_id, port, controllers, data=running.path / str(node_id))
            config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
            tool = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(config)]
            done = ended(["java", "-cp", class_path, *tool], FORMAT_DEADLINE_S)
            if done.returncode:
                said = (done.stderr or done.stdout).strip().splitlines()
                raise RecipeError(f"Kafka's StorageTool failed: {said[-1] if said else done.returncode}")
            log = running.path / f"{node_id}.log"
            running.processes.append(BrokerProcess([*java, "kafka.Kafka", str(config)], port, log))


def node_settings(node_id: int, port: int, controllers: list[int], *, data: Path) -> dict[str, str]:
    """A combined node's server.properties; beyond what a node must have, all is Kafka's default.

    Internal topics get as many replicas as there are nodes, up to Kafka's three.
    """
    replicas = str(min(len(controllers), 3))
    voters = ",".join(f"{number}@127.0.0.1:{each}" for number, each in enumerate(controllers, start=1))
    return {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "controller.quorum.voters": voters,
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controllers[node_id - 1]}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": str(data),
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": "1",
    }


def class_path_of_directory(directory: Path) -> str:
    """The jars of an unpacked release. Raises ConfigError: it is none."""
    if not list((directory / "libs").glob("kafka_2.*.jar")):
        raise ConfigError(f"target kafka:{directory}: has no libs/kafka_2.*.jar, so it is no Kafka release")
    return f"{directory.absolute()}/libs/*"


@functools.cache
def class_path_of_maven(version: str) -> str:
    """Resolve the jars, downloading what is missing. Raises RecipeError: Maven is not there, or cannot."""
    if shutil.which("mvn") is None:
        raise RecipeError(f"target kafka:maven:{version} needs mvn, and there is none")
    with tempfile.TemporaryDirectory(prefix="minikafka-bench-") as directory:
        pom, target = Path(directory) / "pom.xml", Path(directory) / "class-path"
        pom.write_text(_POM.format(version=version))
        command = [
            "mvn", "-q", "-B", "-f", str(pom), "dependency:build-classpath", f"-Dmdep.outputFile={target}",
        ]  # fmt: skip
        done = ended(command, MAVEN_DEADLINE_S)
        if done.returncode or not target.exists():
            errors = [line for line in done.stdout.splitlines() if line.startswith("[ERROR]")]
            reason = errors[0].removeprefix("[ERROR] ") if errors else f"status {done.returncode}"
            raise RecipeError(f"target kafka:maven:{version}: Maven cannot resolve it: {reason}")
        return target.read_text().strip()


class Address(msgspec.Struct, frozen=True):
    """Brokers that run already."""

    bootstrap: str
    pids: tuple[int, ...] = ()
    security: dict[str, str] = {}
    """librdkafka's properties of TLS and SASL."""


class MinikafkaRecipe(msgspec.Struct, frozen=True):
    """``command``: what runs a broker; None: this interpreter's."""

    command: str | None = None

    def start(self, running: RunningBrokers, brokers: int) -> None:
        """One process a broker; several share a SQLite file."""
        executable = module_command("minikafka.cli.broker")
        environment: Mapping[str, str] | None = module_environment()
        if self.command is not None:  # which has code of its own, and must not find ours
            executable, environment = [self.command], None
        ports = free_ports(brokers)
        running.bootstrap = ",".join(f"localhost:{port}" for port in ports)
        for node_id, port in enumerate(ports, start=1):
            arguments = [f"--port={port}", f"--data-dir={running.path}/{node_id}", "--http-port=off"]
            if brokers > 1:
                arguments.append(f"--set=coordination=sqlite:///{running.path}/coordination.sqlite")
                arguments.append(f"--set=node.id={node_id}")
            log = running.path / f"{node_id}.log"
            running.processes.append(
                BrokerProcess([*executable, *arguments], port, log, environment=environment)
            )


class MockRecipe(msgspec.Struct, frozen=True):
    """librdkafka's mock cluster (``mock_cluster``)."""

    def start(self, running: RunningBrokers, brokers: int) -> None:
        """All brokers are one process, which prints where they are."""
        log = running.path / "mock.log"
        command = [*module_command("minikafka.loadgen.mock_cluster"), str(brokers)]
        process = BrokerProcess(command, 0, log, environment=module_environment(), holds_input=True)
        running.processes.append(process)
        while not (addresses := log.read_text()).endswith("\n"):
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = process.process.wait(timeout=0.005)
                raise RecipeError(f"the mock cluster ended with {status}: {process.log_tail()}")
        running.bootstrap = addresses.strip()
        process.port = int(running.bootstrap.rpartition(":")[2])


Recipe = Address | MinikafkaRecipe | MockRecipe | KafkaRecipe


def parse_target(
    text: str, *, pids: tuple[int, ...] = (), security: Mapping[str, str] | None = None
) -> Recipe:
    """See the module header. ``security``: librdkafka's properties of TLS and SASL, of a target that is an
    address; what a recipe starts has neither. Raises ConfigError: names the target, and says what it may be.
    """
    kind, _, rest = text.partition(":")
    match kind, rest:
        case "minikafka", "":
            return MinikafkaRecipe()
        case "minikafka", command if not command.isdigit():
            if not Path(command).is_file():
                raise ConfigError(f"target {text}: there is no command {command}")
            return MinikafkaRecipe(str(Path(command).absolute()))
        case "mock", "":
            return MockRecipe()
        case "kafka", where if where and not where.isdigit():
            if where.startswith("maven:"):
                return KafkaRecipe(text, version=where.removeprefix("maven:"))
            class_path_of_directory(Path(where))
            return KafkaRecipe(text, directory=where)
    for address in text.split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port[:6]) <= 65535:
            raise ConfigError(
                f"target {text}: must be HOST:PORT, minikafka, minikafka:COMMAND, mock, kafka:DIR "
                "or kafka:maven:VERSION"
            )
    return Address(text, pids, dict(security or {}))


@contextlib.contextmanager
def running(recipe: Recipe, name: str, *, brokers: int = 1) -> Iterator[tuple[Target, float]]:
    """The target, and the seconds it took to start (0 for an address); stopped at the end.

    Raises:
        RecipeError: it does not start; says why.
    """
    if isinstance(recipe, Address):
        yield Target(name, recipe.bootstrap, recipe.pids, recipe.security), 0.0
        return
    # A broker that is stopped hard may leave files behind while the directory is being removed.
    directory = tempfile.TemporaryDirectory(prefix="minikafka-bench-", ignore_cleanup_errors=True)
    with RunningBrokers(directory) as started:
        recipe.start(started, brokers)
        started.wait_until_up(START_DEADLINE_S)
        Cluster(started.bootstrap, timeout_s=MEMBERS_S).wait_for_brokers(brokers, deadline_s=MEMBERS_S)
        yield Target(name, started.bootstrap, started.pids), started.start_s


def prepare(recipe: Recipe) -> None:
    """What takes long and is not to be measured: Maven's downloads. Raises RecipeError."""
    if isinstance(recipe, KafkaRecipe) and recipe.version:
        class_path_of_maven(recipe.version)

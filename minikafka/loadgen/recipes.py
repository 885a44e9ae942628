"""Targets of a run: addresses, or recipes that start brokers for it and stop them.

| text | target |
|---|---|
| ``HOST:PORT``, several with commas | brokers that are there |
| ``minikafka`` | this installation's broker, as processes; ``minikafka:COMMAND`` runs that command instead |
| ``mock`` | librdkafka's mock cluster, in a process of its own |
| ``kafka:DIR`` | Apache Kafka from an unpacked release, KRaft |
| ``kafka:maven:VERSION`` | Apache Kafka by its Maven coordinates |

Every recipe keeps its data in a temporary directory that goes with it, and listens on free local ports.

Apache Kafka is KRaft, combined controller and broker, with the default heap and settings of a release. From a
directory it is the release's own ``libs``; by Maven coordinates the jars are resolved by ``mvn`` and lie in
its repository. The JVM's options are those of ``kafka-server-start.sh`` and ``kafka-run-class.sh``: a heap of
1 GB, G1 with its pause goal. Logging goes to standard output, through whatever binding is there.
"""

from __future__ import annotations

import contextlib
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from minikafka.errors import ConfigError
from minikafka.loadgen.runner import Target
from minikafka.loadgen.target import (
    BrokerProcess,
    Cluster,
    RecipeError,
    RunningBrokers,
    ended,
    free_ports,
    module_command,
    module_environment,
)

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

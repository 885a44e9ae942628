"""Targets of a run: addresses, or recipes that start brokers for it and stop them.

| text | target |
|---|---|
| ``HOST:PORT``, several with commas | brokers that are there |
| ``minikafka`` | this installation's broker, as processes; ``minikafka:COMMAND`` runs that command instead |
| ``mock`` | librdkafka's mock cluster, in a process of its own |
| ``kafka:DIR`` | Apache Kafka from an unpacked release, KRaft |
| ``kafka:maven:VERSION`` | Apache Kafka by its Maven coordinates |

Every recipe keeps its data in a temporary directory that goes with it, and listens on free local ports.
"""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from minikafka.errors import ConfigError
from minikafka.loadgen import interpreter
from minikafka.loadgen.brokers import BrokerProcess, RecipeError, RunningBrokers, free_ports
from minikafka.loadgen.cluster import Cluster
from minikafka.loadgen.kafka_recipe import KafkaRecipe, class_path_of_directory, class_path_of_maven
from minikafka.loadgen.runner import Target

START_DEADLINE_S = 120.0
MEMBERS_S = 60.0


class Address(msgspec.Struct, frozen=True):
    """Brokers that somebody else runs."""

    bootstrap: str
    pids: tuple[int, ...] = ()


class MinikafkaRecipe(msgspec.Struct, frozen=True):
    """``command``: what runs a broker; None: this interpreter's."""

    command: str | None = None

    def start(self, running: RunningBrokers, brokers: int) -> None:
        """One process a broker; several share a SQLite file."""
        executable = interpreter.command("minikafka.cli.broker")
        if self.command is not None:
            executable = [self.command]
        ports = free_ports(brokers)
        running.bootstrap = ",".join(f"localhost:{port}" for port in ports)
        for node_id, port in enumerate(ports, start=1):
            arguments = [f"--port={port}", f"--data-dir={running.path}/{node_id}", "--http-port=off"]
            if brokers > 1:
                arguments.append(f"--set=coordination=sqlite:///{running.path}/coordination.sqlite")
                arguments.append(f"--set=node.id={node_id}")
            log = running.path / f"{node_id}.log"
            running.processes.append(BrokerProcess([*executable, *arguments], port, log))


class MockRecipe(msgspec.Struct, frozen=True):
    """librdkafka's mock cluster (``mock_cluster``)."""

    def start(self, running: RunningBrokers, brokers: int) -> None:
        """All brokers are one process, which prints where they are."""
        log = running.path / "mock.log"
        command = [*interpreter.command("minikafka.loadgen.mock_cluster"), str(brokers)]
        process = BrokerProcess(command, 0, log, holds_input=True)
        running.processes.append(process)
        while not (addresses := log.read_text()).endswith("\n"):
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = process.process.wait(timeout=0.005)
                raise RecipeError(f"the mock cluster ended with {status}: {process.log_tail()}")
        running.bootstrap = addresses.strip()
        process.port = int(running.bootstrap.rpartition(":")[2])


Recipe = Address | MinikafkaRecipe | MockRecipe | KafkaRecipe


def parse_target(text: str, *, pids: tuple[int, ...] = ()) -> Recipe:
    """See the module header. Raises ConfigError: names the target, and says what it may be."""
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
    return Address(text, pids)


@contextlib.contextmanager
def running(recipe: Recipe, name: str, *, brokers: int = 1) -> Iterator[tuple[Target, float]]:
    """The target, and the seconds it took to start (0 for an address); stopped at the end.

    Raises:
        RecipeError: it does not start; says why.
    """
    if isinstance(recipe, Address):
        yield Target(name, recipe.bootstrap, recipe.pids), 0.0
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

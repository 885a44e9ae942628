"""Apache Kafka as a target: KRaft, combined controller and broker, default heap and settings of a release.

From a directory it is the release's own ``libs``; by Maven coordinates the jars are resolved by ``mvn`` and
lie in its repository. The JVM's options are those of ``kafka-server-start.sh`` and ``kafka-run-class.sh``: a
heap of 1 GB, G1 with its pause goal. Logging goes to standard output, through whatever binding is there.
"""

from __future__ import annotations

import functools
import shutil
import tempfile
from pathlib import Path

import msgspec

from minikafka.errors import ConfigError
from minikafka.loadgen.brokers import BrokerProcess, RecipeError, RunningBrokers, ended, free_ports

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

"""Servers that an export talks to, as their projects ship them: Iceberg's REST catalog and a schema registry.

Both are Java programs from Maven, fetched once into the repository's cache (``hadoop``).
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tests.integration.support.java import JVM
from tests.spark.hadoop import PYSPARK, SOURCES, artifact, jars
from tests.spark.object_store import ObjectStore
from tests.support.ports import free_port

DEADLINE_S = 120.0
_HADOOP = ("hadoop-client-api", "hadoop-client-runtime", "jcl-over-slf4j", "log4j-api", "log4j-core")
"""Of PySpark's jars."""


class JavaServer:
    """A JVM that answers HTTP on 127.0.0.1."""

    def __init__(
        self, directory: Path, command: Sequence[str], environment: Mapping[str, str], port: int, ready: str
    ) -> None:
        """Waits until ``ready``, a path, is answered with 200. Raises AssertionError with its output."""
        directory.mkdir(exist_ok=True)
        self.port = port
        self._log = directory / "server.log"
        with open(self._log, "ab") as output:
            self._process = subprocess.Popen(
                [*JVM, *command],
                cwd=directory,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        deadline = time.monotonic() + DEADLINE_S
        while not self._answers(ready):
            said = self._log.read_text()[-8000:]
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.close()
                raise AssertionError(f"{self!r} does not start:\n{said}")
            time.sleep(0.05)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} 127.0.0.1:{self.port}>"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def ask(self, path: str, body: Any = None) -> Any:
        """What it answers, as JSON; with a body it is a POST. Raises HTTPError."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as response:
            return json.loads(response.read())

    def _answers(self, path: str) -> bool:
        try:
            self.ask(path)
        except (OSError, ValueError):
            return False
        return True


def _jars_of_rest() -> list[Path]:
    return [
        *jars("iceberg-rest"),
        *(next((PYSPARK / "jars").glob(f"{name}-[0-9]*.jar")) for name in _HADOOP),
    ]


def write_hadoop_configuration(path: Path, settings: Mapping[str, str]) -> None:
    """``settings`` as Spark has them, as Hadoop reads them from the class path."""
    root = ElementTree.Element("configuration")
    for name, value in settings.items():
        described = ElementTree.SubElement(root, "property")
        ElementTree.SubElement(described, "name").text = name.removeprefix("spark.hadoop.")
        ElementTree.SubElement(described, "value").text = value
    ElementTree.ElementTree(root).write(path)


class IcebergRest(JavaServer):
    """Iceberg's REST catalog, a fixture of its own tests: tables in SQLite, files below ``warehouse``, or in
    ``store``, which Hadoop's connector for S3 reads and writes."""

    def __init__(self, directory: Path, store: ObjectStore | None = None) -> None:
        directory.mkdir()
        self.warehouse = directory / "warehouse"
        warehouse, self._class_path = self.warehouse.as_uri(), ":".join(map(str, _jars_of_rest()))
        if store is not None:
            warehouse = store.table_uri("warehouse").replace("s3://", "s3a://")
            write_hadoop_configuration(directory / "core-site.xml", store.s3a_settings())
            # In front: Iceberg's own tests have a class of the connector's name.
            self._class_path = ":".join([str(directory), *map(str, jars("s3a")), self._class_path])
        port = free_port()
        super().__init__(
            directory,
            ["-cp", self._class_path, "org.apache.iceberg.rest.RESTCatalogServer"],
            {
                "CATALOG_URI": f"jdbc:sqlite:{directory}/catalog.db",
                "CATALOG_WAREHOUSE": warehouse,
                "CATALOG_IO__IMPL": "org.apache.iceberg.hadoop.HadoopFileIO",
                "CATALOG_REST_PORT": str(port),
            },
            port,
            "/v1/config",
        )

    def read(self, table: str) -> list[list[str]]:
        """A table's partitions, offsets, keys and values, as Iceberg's own library reads them."""
        command = [*JVM, "-cp", self._class_path, str(SOURCES / "ReadTable.java"), self.url, table]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        assert done.returncode == 0, done.stderr[-8000:]
        return [line.split("\t") for line in done.stdout.splitlines()]


_HIVE_LOCK_TABLES = (
    "NEXT_LOCK_ID (NL_NEXT bigint NOT NULL)",
    "NEXT_TXN_ID (NTXN_NEXT bigint NOT NULL)",
    "TXNS (TXN_ID bigint NOT NULL PRIMARY KEY, TXN_STATE char(1) NOT NULL, TXN_STARTED bigint NOT NULL, "
    "TXN_LAST_HEARTBEAT bigint NOT NULL, TXN_USER varchar(128) NOT NULL, TXN_HOST varchar(128) NOT NULL)",
    "TXN_COMPONENTS (TC_TXNID bigint, TC_DATABASE varchar(128) NOT NULL, TC_TABLE varchar(128), "
    "TC_PARTITION varchar(767), TC_OPERATION_TYPE char(1) NOT NULL)",
    "HIVE_LOCKS (HL_LOCK_EXT_ID bigint NOT NULL, HL_LOCK_INT_ID bigint NOT NULL, HL_TXNID bigint, "
    "HL_DB varchar(128) NOT NULL, HL_TABLE varchar(128), HL_PARTITION varchar(767), "
    "HL_LOCK_STATE char(1) NOT NULL, HL_LOCK_TYPE char(1) NOT NULL, HL_LAST_HEARTBEAT bigint NOT NULL, "
    "HL_ACQUIRED_AT bigint, HL_USER varchar(128) NOT NULL, HL_HOST varchar(128) NOT NULL, "
    "HL_HEARTBEAT_COUNT integer, HL_AGENT_INFO varchar(128), HL_BLOCKEDBY_EXT_ID bigint, "
    "HL_BLOCKEDBY_INT_ID bigint, PRIMARY KEY (HL_LOCK_EXT_ID, HL_LOCK_INT_ID))",
    "AUX_TABLE (MT_KEY1 varchar(128) NOT NULL, MT_KEY2 bigint NOT NULL, MT_COMMENT varchar(255), "
    "PRIMARY KEY (MT_KEY1, MT_KEY2))",
)
"""For the locks that commits take. A tool of Hive's makes them, which PySpark does not bring."""


class HiveMetastore(JavaServer):
    """Hive's metastore, of the release that PySpark brings, with a database of its own (Derby)."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.warehouse = directory / "warehouse"
        port = free_port()
        database = f"jdbc:derby:{directory}/metastore;create=true"
        settings = {
            "javax.jdo.option.ConnectionURL": database,
            "datanucleus.schema.autoCreateAll": "true",
            "hive.metastore.schema.verification": "false",
            "hive.metastore.warehouse.dir": self.warehouse.as_uri(),
            "hive.async.log.enabled": "false",  # for which a jar is not there
            "datanucleus.connectionPoolingType": "none",
        }
        made = "".join(f"CREATE TABLE {each};\n" for each in _HIVE_LOCK_TABLES)
        made += "".join(f"INSERT INTO {each} VALUES (1);\n" for each in ("NEXT_LOCK_ID", "NEXT_TXN_ID"))
        done = subprocess.run(
            [*JVM, "-cp", f"{PYSPARK}/jars/*", f"-Dij.database={database}", "org.apache.derby.tools.ij"],
            cwd=directory,
            input=made,
            text=True,
            capture_output=True,
        )
        assert "ERROR" not in done.stdout and done.returncode == 0, done.stdout + done.stderr
        opened = [
            f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("java.lang", "java.net", "java.util")
        ]
        super().__init__(
            directory,
            [
                *opened,
                f"-Djava.io.tmpdir={directory}",  # for its log
                *(f"-D{name}={text}" for name, text in settings.items()),
                *("-cp", f"{PYSPARK}/jars/*", "org.apache.hadoop.hive.metastore.HiveMetaStore"),
                *("-p", str(port)),
            ],
            {},
            port,
            "",
        )

    def _answers(self, path: str) -> bool:
        """It speaks Thrift."""
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE_S).close()
        except OSError:
            return False
        return True


class SchemaRegistry(JavaServer):
    """Apicurio Registry, which keeps its schemas in a topic of a Kafka cluster, by Confluent's API."""

    API = "/apis/ccompat/v7"
    ARTIFACT = ("io.apicurio", "apicurio-registry-app", "3.0.9", "all.tar.gz")
    """109 MB: all that its users download."""

    def __init__(self, directory: Path, bootstrap: str) -> None:
        directory.mkdir()
        home = directory / "apicurio"
        shutil.unpack_archive(artifact(*self.ARTIFACT), home, "gztar")
        (runner,) = home.glob("*-runner.jar")
        port = free_port()
        super().__init__(
            directory,
            [f"-Djava.io.tmpdir={directory}", "-jar", str(runner)],
            {
                "APICURIO_STORAGE_KIND": "kafkasql",
                "APICURIO_KAFKASQL_BOOTSTRAP_SERVERS": bootstrap,
                "APICURIO_STORAGE_SNAPSHOT_LOCATION": str(directory),
                "QUARKUS_HTTP_HOST": "127.0.0.1",
                "QUARKUS_HTTP_PORT": str(port),
            },
            port,
            f"{self.API}/subjects",
        )

    def register(self, subject: str, schema: Any, kind: str = "AVRO") -> int:
        """Returns the schema's id. Raises HTTPError: the registry refuses it."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        path = f"{self.API}/subjects/{subject}/versions"
        found: int = self.ask(path, {"schema": text, "schemaType": kind})["id"]
        return found

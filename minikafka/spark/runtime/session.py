"""The Spark session of every job: ``--master`` and ``--conf``, Java, quiet logs, the package on executors,
and one clear line out of what Spark throws, where the error of a Python worker arrives inside three stacks.

On its own a job runs inside one JVM on this machine (``local[*]``), bound to loopback. With ``--master`` of a
cluster its executors get this package as a zip; the libraries that it imports must be installed there. Under
``spark-submit`` the JVM is there already, and its master and settings count. What the user gives with
``--conf`` always wins. pyspark is imported only when a session is asked for.

Which Java Spark would run on is found without starting it. Spark's ``bin/spark-class`` takes
``$JAVA_HOME/bin/java``, else the first ``java`` of the path. Spark 4 needs Java 17. A JDK or JRE says its
version in a file ``release`` beside ``bin``; only where that is missing the program is asked, which takes a
tenth of a second.

What the JVM writes to standard error is passed on line by line, without what is only noise. It gets the
writing end of a pipe; a thread reads the other one until the JVM has gone. Until it is known whether the JVM
starts, its lines are kept: when it does not, they say why.

The zip is also made by hand::

    python -m minikafka.spark.runtime.session DIR

writes ``minikafka.zip`` and ``main.py`` into DIR. Then what follows ``main.py`` in ``spark-submit --py-files
DIR/minikafka.zip DIR/main.py …`` is what follows ``minikafka`` on a command line. The zip holds minikafka
alone: the libraries that it imports must be installed where executors run.
"""

from __future__ import annotations

import argparse
import atexit
import importlib.util
import marshal
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import MAGIC_NUMBER, source_hash
from pathlib import Path
from typing import TYPE_CHECKING

import minikafka
from minikafka.errors import MinikafkaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_OURS = re.compile(r"^(?:pyspark\.errors\.\S+: )?minikafka\.[\w.]+: (?P<message>.+)$", re.MULTILINE)
_LAST_OF_TRACEBACK = re.compile(
    r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(?P<message>\S.*)$", re.MULTILINE
)
_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] (?P<message>.*?)(?: SQLSTATE: P0001)?$", re.MULTILINE)
_JAVA = re.compile(r"^: (?:[\w.$]+: )?(?P<message>.+)$", re.MULTILINE)
"""Behind py4j's "An error occurred while calling …"."""
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w{5}\s*$")

PACKAGE = Path(minikafka.__file__).parent
"""Where this process has it: a directory, or inside a zip that ``--py-files`` brought."""

ZIP_NAME, ENTRY_POINT_NAME = "minikafka.zip", "main.py"

ENTRY_POINT = '''\
"""minikafka for spark-submit: what follows this file's name is what follows ``minikafka``."""

import sys

from minikafka.cli.main import main

sys.exit(main(sys.argv[1:]))
'''

JAVA_MIN = 17
"""What Spark 4 is compiled for."""

HOW_TO_GET_IT = (
    "install it (Debian, Ubuntu: apt install default-jre-headless), or set JAVA_HOME to where it lies"
)
ANSWER_S = 30

_VERSION = re.compile(r'(?:^JAVA_VERSION=|version )"(?:1\.)?(\d+)', re.MULTILINE)

NOISE = ("WARNING: Using incubator modules",)
"""Printed at every start, whatever the settings are."""

END_S = 5.0

LOCAL_MASTER = "local[*]"

SETTINGS = {
    "spark.sql.python.filterPushdown.enabled": "true",  # the source skips segments by what is filtered
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",  # a record's date is the same wherever the job runs
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",  # a topic "0012" stays a string
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # not INT96, which only Spark and Hive read
    "spark.ui.enabled": "false",  # half a second, and a port
    "spark.ui.showConsoleProgress": "false",  # minikafka.spark.runtime.progress shows it
}
"""For every master; ``--conf`` overrides them."""

LOCAL_SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
}

PANDAS_WARNING = "PySpark does not yet fully support pandas"
"""Said at import; the jobs use Arrow, and no pandas."""


class JobError(MinikafkaError):
    """A job cannot do what it was asked; the message is for the person who asked."""


def explain(error: BaseException) -> str:
    """What went wrong, in one line: the message of our own error where there is one at the bottom of it."""
    if isinstance(error, MinikafkaError):
        return str(error)
    text = str(error)
    for pattern in (_OURS, _RAISED, _JAVA):
        if match := pattern.search(text):
            return match["message"].strip()
    if matches := list(_LAST_OF_TRACEBACK.finditer(text)):
        return matches[-1]["message"].strip()
    lines = [line.strip() for line in text.split("\n\nJVM stacktrace:")[0].splitlines() if line.strip()]
    return _SQLSTATE.sub("", lines[0]) if lines else type(error).__name__


# ---- the package as a zip


def is_zipped() -> bool:
    """Whether this process imports the package from a zip, which Spark has sent everywhere already."""
    return not PACKAGE.is_dir()


def write_package(path: Path) -> Path:
    """Write the package as a zip to ``path``, and return it. Raises OSError.

    Byte code goes with it, because Python writes none into a zip: each Python worker would compile every
    module that it imports. Another version of Python takes the sources.
    """
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(PACKAGE.rglob("*")):
            if not file.is_file() or "__pycache__" in file.parts:
                continue
            name = file.relative_to(PACKAGE.parent)
            archive.write(file, name)
            if file.suffix == ".py":
                archive.writestr(str(name.with_suffix(".pyc")), _byte_code(file, str(name)))
    return path


def _byte_code(file: Path, name: str) -> bytes:
    """As a .pyc that counts whatever the time of its source is."""
    source = file.read_bytes()
    code = compile(source, name, "exec", dont_inherit=True)
    unchecked_hash = (1).to_bytes(4, "little")
    return b"".join((MAGIC_NUMBER, unchecked_hash, source_hash(source), marshal.dumps(code)))


def main(argv: Sequence[str] | None = None) -> int:
    """Write both files. Returns the exit status."""
    options = argparse.ArgumentParser(
        prog="python -m minikafka.spark.runtime.session",
        description=f"Write {ZIP_NAME} and {ENTRY_POINT_NAME} for spark-submit.",
    )
    options.add_argument("directory", metavar="DIR", type=Path, help="where to; made if it is not there")
    directory: Path = options.parse_args(argv).directory
    try:
        directory.mkdir(parents=True, exist_ok=True)
        package = write_package(directory / ZIP_NAME)
        entry_point = directory / ENTRY_POINT_NAME
        entry_point.write_text(ENTRY_POINT, encoding="utf-8")
    except OSError as error:
        print(f"minikafka.spark.runtime.session: {directory}: {error.strerror}", file=sys.stderr)
        return 1
    print(f"spark-submit --py-files {os.fspath(package)} {os.fspath(entry_point)} export --help")
    return 0


if __name__ == "__main__":
    sys.exit(main())


# ---- Java


class SparkMissing(MinikafkaError):
    """Spark cannot start on this machine; the message says in one line what is missing and how to get it."""


def check_java(environment: Mapping[str, str] | None = None) -> Path:
    """The ``java`` that Spark is going to run.

    Raises:
        SparkMissing: there is none, or it is older than Spark takes.
    """
    variables = os.environ if environment is None else environment
    home = variables.get("JAVA_HOME")
    if home:
        found = shutil.which("java", path=os.path.join(home, "bin"))
        if found is None:
            raise SparkMissing(f"JAVA_HOME is {home}, and there is no bin/java in it: {HOW_TO_GET_IT}")
    else:
        found = shutil.which("java", path=variables.get("PATH", os.defpath))
        if found is None:
            raise SparkMissing(f"Spark needs Java {JAVA_MIN} or newer, and finds none: {HOW_TO_GET_IT}")
    java = Path(found)
    version = _version(java)
    if version < JAVA_MIN:
        raise SparkMissing(f"Spark needs Java {JAVA_MIN} or newer, and {java} is {version}: {HOW_TO_GET_IT}")
    return java


def _version(java: Path) -> int:
    """The feature release: 8, 11, 17, 21 …"""
    release = java.resolve().parent.parent / "release"
    try:
        text = release.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = _own_words(java)
    match = _VERSION.search(text)
    if match is None:
        raise SparkMissing(f"{java} does not say which Java it is: {HOW_TO_GET_IT}")
    return int(match[1])


def _own_words(java: Path) -> str:
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, check=False, timeout=ANSWER_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SparkMissing(f"{java} cannot be run ({error}): {HOW_TO_GET_IT}") from error
    return done.stderr + done.stdout


# ---- what a JVM says


class JvmErrors:
    """``writing_end`` is for the JVM; then comes ``started`` or ``failed``."""

    def __init__(self) -> None:
        reading_end, self.writing_end = os.pipe()
        self._stream = os.fdopen(reading_end, encoding="utf-8", errors="replace")
        self._kept: list[str] = []
        self._is_kept = True
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._read, name="jvm-errors", daemon=True)
        self._thread.start()

    def started(self) -> None:
        """The JVM runs: what it has said and what it is going to say goes to our standard error."""
        os.close(self.writing_end)
        with self._lock:
            self._is_kept = False
            sys.stderr.writelines(self._kept)
            self._kept.clear()

    def failed(self) -> str:
        """The JVM has ended: all that it said, in one line, without the stack."""
        os.close(self.writing_end)
        self._thread.join(END_S)
        with self._lock:
            said = " ".join(line.strip() for line in self._kept if not line.startswith("\tat "))
        return said.strip().removeprefix('Exception in thread "main" ')

    def _read(self) -> None:
        with self._stream as lines:
            for line in lines:
                if line.startswith(NOISE):
                    continue
                with self._lock:
                    if self._is_kept:
                        self._kept.append(line)
                    else:
                        sys.stderr.write(line)


# ---- the session


def add_spark_options(options: argparse.ArgumentParser) -> None:
    """``--master`` and ``--conf``, for ``open_session``."""
    group = options.add_argument_group("Spark")
    group.add_argument(
        "--master", metavar="URL", help=f"local[N], spark://…, yarn, k8s://… ({LOCAL_MASTER}: every core)"
    )
    group.add_argument(
        "--conf",
        action="append",
        default=[],
        type=parse_conf,
        metavar="KEY=VALUE",
        help="a setting of Spark's, such as spark.driver.memory=8g; may be given several times",
    )


def parse_conf(text: str) -> tuple[str, str]:
    """``spark.x=y`` as a pair. Raises ArgumentTypeError."""
    key, separator, value = text.partition("=")
    if not separator or not key.strip().startswith("spark."):
        raise argparse.ArgumentTypeError(f"{text!r} is not a setting such as spark.driver.memory=8g")
    return key.strip(), value.strip()


@contextmanager
def open_session(
    name: str, *, master: str | None = None, conf: Sequence[tuple[str, str]] = ()
) -> Iterator[SparkSession]:
    """A session called ``name``, stopped at the end.

    Raises:
        SparkMissing: no pyspark, no Java, or Spark does not start; one line that says what to do.
    """
    check_pyspark()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=PANDAS_WARNING)
        with ThreadPoolExecutor(1) as starting:  # not here: PySpark would take SIGINT, see ``interruption``
            session = starting.submit(_start, name, master, dict(conf)).result()
        try:
            with _package_on_executors(session):
                yield session
        finally:
            session.stop()  # a second stop does nothing


def check_pyspark() -> None:
    """Raises SparkMissing when the extra ``spark`` is not installed."""
    for module in ("pyspark", "pyarrow"):
        if importlib.util.find_spec(module) is None:
            raise SparkMissing(f"{module} is not installed: pip install 'minikafka[spark]'")


def _start(name: str, master: str | None, conf: Mapping[str, str]) -> SparkSession:
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    chosen = master or conf.get("spark.master") or (None if is_submitted else LOCAL_MASTER)
    settings = SETTINGS | {"spark.app.name": name}
    if chosen is not None:
        settings["spark.master"] = chosen
        if is_local(chosen):
            settings |= LOCAL_SETTINGS
    settings |= conf
    if not is_submitted:
        _launch(settings)
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        session: SparkSession = builder.getOrCreate()
    except (Py4JError, PySparkException) as error:  # a master that it cannot read or reach
        raise SparkMissing(f"Spark does not start: {explain(error)}") from error
    return session


def is_local(master: str) -> bool:
    """Whether driver and executors are one process."""
    return master == "local" or master.startswith("local[")


def _launch(settings: dict[str, str]) -> None:
    """Start the JVM, unless an earlier session of this process left one."""
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return
    check_java()
    options = settings.get("spark.driver.extraJavaOptions", "")
    local_directories = _private_directories(settings)
    if "java.io.tmpdir" not in options:
        options = f"-Djava.io.tmpdir={local_directories[0]} {options}".strip()
        settings["spark.driver.extraJavaOptions"] = options
    if "log4j" not in options and not has_own_log4j(os.environ):
        quiet = Path(__file__).with_name("log4j2.properties").as_uri()
        settings["spark.driver.extraJavaOptions"] = f"-Dlog4j2.configurationFile={quiet} {options}".strip()
    conf = SparkConf(loadDefaults=False)
    for key, value in settings.items():
        conf.set(key, value)
    errors = JvmErrors()
    try:
        with _variables_for_workers(settings, local_directories):
            gateway = launch_gateway(conf, {"stderr": errors.writing_end})  # type: ignore[no-untyped-call]
    except PySparkException as error:
        raise SparkMissing(f"Spark does not start: {errors.failed() or error}") from error
    errors.started()
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)


def _private_directories(settings: Mapping[str, str]) -> list[str]:
    """Where Spark on this machine keeps what memory does not hold, which is records, so its owner's alone.

    Spark makes its directories as the umask says; here each place where it would has one that others cannot
    enter. They go when this process ends. Raises SparkMissing: a place cannot be written.
    """
    places = os.environ.get("SPARK_LOCAL_DIRS") or settings.get("spark.local.dir") or tempfile.gettempdir()
    made: list[str] = []
    atexit.register(_remove, made)
    for place in places.split(","):
        try:
            os.makedirs(place.strip(), exist_ok=True)
            made.append(tempfile.mkdtemp(prefix="minikafka-spark-", dir=place.strip()))
        except OSError as error:
            raise SparkMissing(f"Spark does not start: cannot write {place}: {error.strerror}") from None
    return made


def _remove(directories: Sequence[str]) -> None:
    for each in directories:
        shutil.rmtree(each, ignore_errors=True)


def has_own_log4j(environment: Mapping[str, str]) -> bool:
    """Whether Spark finds a log4j configuration of the user's where it looks for one."""
    places = [environment[name] for name in ("SPARK_CONF_DIR",) if name in environment]
    if not places and "SPARK_HOME" in environment:
        places = [os.path.join(environment["SPARK_HOME"], "conf")]
    return any(path.suffix != ".template" for place in places for path in Path(place).glob("log4j2.*"))


@contextmanager
def _variables_for_workers(settings: Mapping[str, str], local_directories: Sequence[str]) -> Iterator[None]:
    """The environment of the JVM, and so of Python workers on this machine: they are run by this interpreter,
    and import the package from where this process has it."""
    python = settings.get("spark.pyspark.python")
    if python is not None or is_local(settings["spark.master"]):
        os.environ["PYSPARK_PYTHON"] = python or sys.executable  # PySpark looks nowhere else
    path = os.environ.get("PYTHONPATH")
    root = str(PACKAGE.parent)
    variables = {
        "PYTHONPATH": root if path is None else f"{root}{os.pathsep}{path}",
        "SPARK_LOCAL_DIRS": ",".join(
            local_directories
        ),  # of this machine: executors elsewhere have their own
    }
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _package_on_executors(session: SparkSession) -> Iterator[None]:
    """Executors on other machines import the package from a zip; ``--py-files`` may have brought it already.
    They fetch it from this process, when they like, so it is kept until the session stops."""
    if is_local(session.conf.get("spark.master") or "") or is_zipped():
        yield
        return
    with tempfile.TemporaryDirectory(prefix="minikafka-spark-") as directory:
        session.sparkContext.addPyFile(str(write_package(Path(directory) / ZIP_NAME)))
        try:
            yield
        finally:
            session.stop()

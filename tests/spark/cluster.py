"""A Spark standalone cluster for tests: a master and two workers, each a JVM with directories of its own.

The workers have different loopback addresses, because Spark runs the second attempt at a slow task only on
another host. They know nothing of this repository: what executors import, a job has sent them. And their
Python may hang: ``Stall`` makes the first process that comes to a function wait there.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tarfile
import time
import venv
from collections.abc import Mapping, Sequence
from importlib.metadata import distribution
from pathlib import Path

import pyspark
from packaging.requirements import Requirement

from tests.spark.conftest import CONF
from tests.support.ports import free_port
from tests.support.processes import arguments_of, descendants

ROOT = Path(__file__).resolve().parents[2]
PYSPARK = Path(pyspark.__file__).parent
DEADLINE_S = 600.0
QUICK_JVM = CONF["spark.driver.extraJavaOptions"]
HOSTS = ("127.0.0.1", "127.0.0.2")

SMALL_JOBS = CONF | {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK_JVM,
}
"""Whose start is most of what they cost."""

EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"

_SITE = '''\
"""A machine whose disk hangs: a read waits, in one process, for as long as there is a plan."""

import os
import sys
import time

PLAN = os.environ["STALL_PLAN"]
calls = 0
pread = os.pread


def is_called_by(name):
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_name != name:
        frame = frame.f_back
    return frame is not None


def slow_pread(*arguments):
    global calls
    if os.path.exists(PLAN) and not os.path.exists(PLAN + ".stalled"):
        with open(PLAN) as plan:
            name, after = plan.read().split()
        if is_called_by(name):
            calls += 1
            if calls > int(after):
                stall()
    return pread(*arguments)


def stall():
    try:
        fd = os.open(PLAN + ".stalled", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except FileExistsError:
        return
    os.write(fd, b"%d\\n" % os.getpid())
    os.close(fd)
    while os.path.exists(PLAN):
        time.sleep(0.02)


os.pread = slow_pread
'''


class ClusterJob:
    """A command that runs; what it says goes to files, which never make it wait."""

    def __init__(
        self, command: Sequence[str], *, cwd: Path, environment: Mapping[str, str], log: Path
    ) -> None:
        self._out, self._err = log.with_suffix(".out"), log.with_suffix(".err")
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        with open(self._out, "wb") as out, open(self._err, "wb") as err:
            self._process = subprocess.Popen(
                command,
                cwd=cwd,
                env=inherited | environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def said(self) -> str:
        return self._out.read_text(errors="replace") + self._err.read_text(errors="replace")[-20_000:]

    def finish(self, *, deadline_s: float = DEADLINE_S) -> str:
        """What it printed. Raises AssertionError, with what it said, where it failed or did not end."""
        try:
            status = self._process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"the job did not end:\n{self.said()}") from None
        assert status == 0, f"the job ended with {status}:\n{self.said()}"
        return self._out.read_text()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class Stall:
    """While it lasts, one Python process of the cluster waits in a function; the others pass."""

    def __init__(self, cluster: SparkCluster, function: str, *, after_reads: int = 0) -> None:
        self._plan = cluster.stall_plan
        self._stalled = self._plan.with_name(self._plan.name + ".stalled")
        self._stalled.unlink(missing_ok=True)
        self._plan.write_text(f"{function} {after_reads}")

    def pid(self, job: ClusterJob) -> int:
        """The process that waits, once there is one. ``job``: what it works for."""
        deadline = time.monotonic() + DEADLINE_S
        while not (self._stalled.exists() and (text := self._stalled.read_text()).endswith("\n")):
            assert not job.has_ended, f"the job has ended:\n{job.said()}"
            assert time.monotonic() < deadline, f"no process came to the place:\n{job.said()}"
            time.sleep(0.02)
        return int(text)

    @property
    def has_come(self) -> bool:
        return self._stalled.exists()

    def end(self) -> None:
        self._plan.unlink(missing_ok=True)


class SparkCluster:
    """Started by its constructor."""

    def __init__(self, directory: Path, *, cores: int = 1, memory: str = "1g") -> None:
        """``cores`` and ``memory`` of each of the two workers."""
        self._directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []
        self._jobs: list[ClusterJob] = []
        self.stall_plan = directory / "stall"
        site = directory / "site"
        site.mkdir(parents=True)
        (site / "sitecustomize.py").write_text(_SITE)
        port = free_port()
        self.master = f"spark://{HOSTS[0]}:{port}"
        try:
            self._start(
                "master",
                "I have been elected leader",
                *("org.apache.spark.deploy.master.Master", "--host", HOSTS[0], "--port", str(port)),
                *("--webui-port", "0"),
            )
            for number, host in enumerate(HOSTS):
                self._start(
                    f"worker-{number}",
                    "",
                    *("org.apache.spark.deploy.worker.Worker", "--host", host, "--webui-port", "0"),
                    *("--cores", str(cores), "--memory", memory),
                    *("--work-dir", str(directory / f"worker-{number}" / "work"), self.master),
                )
            for number in range(len(HOSTS)):
                self._wait(f"worker-{number}", "Successfully registered with master")
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"<SparkCluster {self.master}>"

    def conf(self, base: Mapping[str, str] = SMALL_JOBS, **more: str) -> list[str]:
        """The settings of a job, as options of its command line; the underscores of ``more`` are dots."""
        settings = {
            **base,
            "spark.driver.host": HOSTS[0],
            "spark.driver.bindAddress": HOSTS[0],
            "spark.pyspark.python": sys.executable,
            # Both executors are there before the first task, and either may have any.
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.locality.wait": "0",
        }
        settings |= {name.replace("_", "."): value for name, value in more.items()}
        return [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]

    def minikafka(self, *arguments: str, cwd: Path = ROOT, conf: Sequence[str] | None = None) -> ClusterJob:
        """A command of minikafka's, with this master."""
        command = [sys.executable, "-m", "minikafka.cli.main", *arguments, "--master", self.master]
        return self._job([*command, *(self.conf() if conf is None else conf)], cwd, {"PYTHONPATH": str(ROOT)})

    def spark_submit(self, package: Path, *arguments: str, conf: Sequence[str]) -> ClusterJob:
        """The same by Spark's own command. ``package``: what ``runtime.session`` has written."""
        command = [
            *(str(PYSPARK / "bin" / "spark-submit"), "--master", self.master, *conf),
            *("--py-files", str(package / "minikafka.zip"), str(package / "main.py"), *arguments),
        ]
        return self._job(command, package, {})

    def _job(self, command: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> ClusterJob:
        log = self._directory / f"job-{len(self._jobs)}"
        self._jobs.append(ClusterJob(command, cwd=cwd, environment=environment, log=log))
        return self._jobs[-1]

    def executor_of(self, pid: int) -> int:
        """The executor that a Python process works for."""
        for worker in self._processes:
            for executor in descendants(worker.pid):
                if EXECUTOR in arguments_of(executor) and pid in descendants(executor):
                    return executor
        raise AssertionError(f"process {pid} is below no executor")

    def close(self) -> None:
        below = [pid for process in self._processes for pid in descendants(process.pid)]
        self.stall_plan.unlink(missing_ok=True)
        for job in self._jobs:
            if not job.has_ended:
                job.kill()
        for process in self._processes:
            process.kill()
            process.wait()
        for pid in below:
            if any(word in (EXECUTOR, "pyspark.daemon") for word in arguments_of(pid)):
                os.kill(pid, signal.SIGKILL)

    def _start(self, name: str, says: str, *arguments: str) -> None:
        directory = self._directory / name
        (directory / "local").mkdir(parents=True)
        environment = {
            "SPARK_HOME": str(PYSPARK),
            "SPARK_LOCAL_DIRS": str(directory / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": f"{QUICK_JVM} -Dspark.master.rest.enabled=false",
            "PYTHONPATH": str(self._directory / "site"),
            "STALL_PLAN": str(self.stall_plan),
        }
        inherited = {key: os.environ[key] for key in ("PATH", "JAVA_HOME", "HOME") if key in os.environ}
        with open(self._log(name), "ab") as log:
            process = subprocess.Popen(
                [str(PYSPARK / "bin" / "spark-class"), *arguments],
                cwd=directory,
                env=inherited | environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._processes.append(process)
        if says:
            self._wait(name, says)

    def _log(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def _wait(self, name: str, says: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while says not in self._log(name).read_text(errors="replace"):
            assert all(each.poll() is None for each in self._processes), self._log(name).read_text()
            assert time.monotonic() < deadline, self._log(name).read_text()
            time.sleep(0.05)


def pack_environment(directory: Path) -> Path:
    """Make ``environment.tar.gz`` in ``directory``, and return it: the virtual environment of this process,
    as tar packs it, but only with what executors need, and without minikafka."""
    skeleton = directory / "skeleton"
    venv.create(skeleton, with_pip=False, symlinks=True)
    (target,) = skeleton.glob("lib/python*/site-packages")
    packages = target.relative_to(skeleton)
    archive = directory / "environment.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        tar.add(skeleton, arcname=".")
        for name in sorted(_needed("minikafka", "pyarrow", "numpy", "fastavro", "protobuf")):
            found = distribution(name)
            for file in found.files or ():
                source = Path(str(found.locate_file(file)))
                if ".." not in file.parts and "tests" not in file.parts and source.is_file():
                    tar.add(source, arcname=str(packages / file))
    return archive


def _needed(*names: str) -> set[str]:
    """The distributions that are installed of these and of all that they need, without minikafka itself."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            for text in distribution(name).requires or ():
                requirement = Requirement(text)
                if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                    waiting.append(requirement.name)
    return found - {"minikafka"}

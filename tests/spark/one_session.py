"""Several commands of minikafka's in one Spark session, which is another process: a line of JSON each.

    python -m tests.spark.one_session --master URL --conf KEY=VALUE …

reads command lines, and answers with the exit status and what was said. ``create URI TEXT`` is none of
minikafka's: it makes a file as an export makes a commit, and fails where the name is taken.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]


class Ended(NamedTuple):
    status: int
    out: str
    err: str


class OneSession:
    """Started by its constructor; Spark's own messages go to ``log``."""

    def __init__(self, master: str, conf: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self._log = log
        with open(log, "ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.one_session", "--master", master, *conf],
                cwd=ROOT,
                env={**os.environ, **environment, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def run(self, *arguments: str) -> Ended:
        """Raises AssertionError: the session has ended."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(arguments) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the session has ended:\n{self._log.read_text()}"
        return Ended(*json.loads(line))

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def main() -> None:
    from minikafka.spark.runtime import job
    from minikafka.spark.runtime.session import add_spark_options, open_session

    options = argparse.ArgumentParser()
    add_spark_options(options)
    arguments = options.parse_args()
    answers = sys.stdout
    with open_session("tests", master=arguments.master, conf=arguments.conf) as spark:

        @contextmanager
        def opened(*_: object, **__: object) -> Iterator[SparkSession]:
            yield spark

        job.open_session = opened
        for line in sys.stdin:
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                status = _run(spark, json.loads(line))
            print(json.dumps([status, out.getvalue(), err.getvalue()]), file=answers, flush=True)


def _run(spark: SparkSession, arguments: list[str]) -> int:
    from minikafka.cli.main import main as minikafka

    if arguments[0] != "create":
        return minikafka(arguments)
    from minikafka.spark.runtime.storage import HadoopFiles, location

    place = location(arguments[1])
    try:
        HadoopFiles(place.parent().text, spark).create(arguments[1].rpartition("/")[2], arguments[2].encode())
    except FileExistsError as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    main()

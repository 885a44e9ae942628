"""Which Java Spark would run on, found without starting it.

Spark's ``bin/spark-class`` takes ``$JAVA_HOME/bin/java``, else the first ``java`` of the path. Spark 4 needs
Java 17. A JDK or JRE says its version in a file ``release`` beside ``bin``; only where that is missing the
program is asked, which takes a tenth of a second.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from minikafka.errors import MinikafkaError

JAVA_MIN = 17
"""What Spark 4 is compiled for."""

HOW_TO_GET_IT = (
    "install it (Debian, Ubuntu: apt install default-jre-headless), or set JAVA_HOME to where it lies"
)
ANSWER_S = 30

_VERSION = re.compile(r'(?:^JAVA_VERSION=|version )"(?:1\.)?(\d+)', re.MULTILINE)


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

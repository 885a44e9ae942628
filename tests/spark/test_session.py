"""A job's Spark session: settings, what is missing, and the package where executors find it."""

from __future__ import annotations

import argparse
import json
import os
import stat
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import minikafka
from minikafka.spark.runtime import session
from minikafka.spark.runtime.session import (
    JvmErrors,
    SparkMissing,
    check_java,
    check_pyspark,
    has_own_log4j,
    is_local,
    parse_conf,
)
from tests.integration.support.clients import Confluent
from tests.integration.support.process import BrokerProcess
from tests.integration.support.records import numbered
from tests.spark.conftest import CONF
from tests.spark.export_support import offsets, wait_for_checkpoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK_JVM = CONF["spark.driver.extraJavaOptions"]
ROOT = Path(minikafka.__file__).parent.parent


def test_a_session_has_our_settings_and_runs_jobs(spark: SparkSession) -> None:
    assert spark.range(10).count() == 10
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert spark.sparkContext.uiWebUrl is None


def test_what_spark_keeps_on_disk_is_its_owners_alone(spark: SparkSession) -> None:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    private = Path(jvm.java.lang.System.getProperty("java.io.tmpdir"))
    assert private.name.startswith("minikafka-spark-")
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    assert {"blockmgr", "spark"} <= {each.name.partition("-")[0] for each in private.iterdir()}
    assert "SPARK_LOCAL_DIRS" not in os.environ


def test_a_place_for_what_spark_keeps_on_disk_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SparkMissing, match=f"cannot write {tmp_path}/file/below: Not a directory"):
        session._private_directories({"spark.local.dir": f"{tmp_path}/here,{tmp_path}/file/below"})
    assert [stat.S_IMODE(each.stat().st_mode) for each in (tmp_path / "here").iterdir()] == [0o700]


def test_workers_import_the_package_that_the_driver_has(spark: SparkSession) -> None:
    def where(_: object) -> tuple[str, str]:
        import sys

        import minikafka

        return sys.executable, str(minikafka.__file__)

    found = spark.sparkContext.parallelize([1], 1).map(where).collect()
    assert found == [(sys.executable, minikafka.__file__)]


def make_java(home: Path, *, release: str | None = None, says: str = "") -> None:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)
    if release is not None:
        (home / "release").write_text(f'IMPLEMENTOR="vendor"\nJAVA_VERSION="{release}"\n')


def test_java_is_found_without_starting_it(tmp_path: Path) -> None:
    make_java(tmp_path / "17", release="17.0.15", says="it is not asked")
    make_java(tmp_path / "old", release="1.8.0_412")
    make_java(tmp_path / "mute", says='openjdk version "21.0.1" 2023-10-17')
    make_java(tmp_path / "odd", says="hello")
    assert check_java({"JAVA_HOME": str(tmp_path / "17"), "PATH": ""}) == tmp_path / "17" / "bin" / "java"
    assert check_java({"PATH": str(tmp_path / "mute" / "bin")}).parent == tmp_path / "mute" / "bin"
    for environment, says in (
        ({"PATH": str(tmp_path)}, "Spark needs Java 17 or newer, and finds none"),
        ({"JAVA_HOME": str(tmp_path)}, f"JAVA_HOME is {tmp_path}, and there is no bin/java in it"),
        ({"JAVA_HOME": str(tmp_path / "old")}, "is 8"),
        ({"JAVA_HOME": str(tmp_path / "odd")}, "does not say which Java it is"),
    ):
        with pytest.raises(SparkMissing) as caught:
            check_java(environment)
        text = str(caught.value)
        assert says in text and "apt install default-jre-headless" in text and "\n" not in text


def test_without_the_extra_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SparkMissing, match=r"pyspark is not installed: pip install 'minikafka\[spark\]'"):
        check_pyspark()


def test_a_job_without_java_ends_with_one_line(tmp_path: Path) -> None:
    done = run_minikafka("export", str(tmp_path), "-o", str(tmp_path / "out"), JAVA_HOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        done.stderr.startswith(f"minikafka export: JAVA_HOME is {tmp_path}, and")
        and done.stderr.count("\n") == 1
    )


def test_a_jvm_that_does_not_start_ends_with_one_line(java: None, tmp_path: Path) -> None:
    conf = ["--conf", "spark.driver.memory=much"]
    done = run_minikafka("export", str(tmp_path), "-o", str(tmp_path / "out"), *conf)
    assert done.returncode == 1
    assert done.stderr.startswith("minikafka export: Spark does not start: ") and "-Xmxmuch" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_master_that_cannot_be_ends_with_one_line(java: None, tmp_path: Path) -> None:
    conf = ["--conf", f"spark.driver.extraJavaOptions={QUICK_JVM}"]
    done = run_minikafka("export", str(tmp_path), "-o", str(tmp_path / "out"), "--master", "nonsense", *conf)
    assert done.returncode == 1
    assert (
        done.stderr.startswith("minikafka export: Spark does not start: ")
        and "Master must either be" in done.stderr
    )
    assert done.stderr.count("\n") == 1


def run_minikafka(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "minikafka.cli.main", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, **environment},
    )


def test_what_the_jvm_says_is_passed_on_without_the_noise(capsys: pytest.CaptureFixture[str]) -> None:
    errors = JvmErrors()
    os.write(errors.writing_end, b"WARNING: Using incubator modules: a\nsomething is wrong\n")
    assert capsys.readouterr().err == ""
    assert errors.failed() == "something is wrong"


def test_settings_from_the_command_line() -> None:
    assert parse_conf("spark.driver.memory=8g") == ("spark.driver.memory", "8g")
    assert parse_conf("spark.x=a=b") == ("spark.x", "a=b")
    for text in ("spark.driver.memory", "driver.memory=8g", "=1"):
        with pytest.raises(argparse.ArgumentTypeError, match="is not a setting"):
            parse_conf(text)
    assert [
        is_local(each) for each in ("local", "local[2]", "local[*]", "local-cluster[1,1,512]", "yarn")
    ] == [
        *[True] * 3,
        *[False] * 2,
    ]


def test_a_log4j_configuration_of_the_users_is_left_alone(tmp_path: Path) -> None:
    conf = tmp_path / "conf"
    conf.mkdir()
    assert not has_own_log4j({})
    assert not has_own_log4j({"SPARK_HOME": str(tmp_path)})
    (conf / "log4j2.properties.template").touch()
    assert not has_own_log4j({"SPARK_CONF_DIR": str(conf)})
    (conf / "log4j2.properties").touch()
    assert has_own_log4j({"SPARK_CONF_DIR": str(conf)}) and has_own_log4j({"SPARK_HOME": str(tmp_path)})


def test_the_package_for_a_cluster_has_all_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert session.main([str(tmp_path / "new")]) == 0
    assert str(tmp_path / "new" / "main.py") in capsys.readouterr().out
    with zipfile.ZipFile(tmp_path / "new" / "minikafka.zip") as archive:
        names = set(archive.namelist())
    expected = {
        path.relative_to(ROOT).as_posix()
        for path in Path(minikafka.__file__).parent.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    byte_code = {str(Path(name).with_suffix(".pyc")) for name in expected if name.endswith(".py")}
    assert names == expected | byte_code
    where = [sys.executable, "-c", "import minikafka.spark as p; print(p.__spec__.cached, p.__file__)"]
    found = subprocess.run(
        where,
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "new" / "minikafka.zip")},
        capture_output=True,
        check=True,
    )
    assert str(tmp_path / "new" / "minikafka.zip" / "minikafka" / "spark").encode() in found.stdout
    (tmp_path / "file").touch()
    assert session.main([str(tmp_path / "file")]) == 1
    assert capsys.readouterr().err == f"minikafka.spark.runtime.session: {tmp_path / 'file'}: File exists\n"


@pytest.fixture
def written(broker: BrokerProcess, topic: str, java: None) -> str:
    """A topic with 20 records."""
    Confluent().write_all(broker.bootstrap, {topic: ("snappy", [numbered(i) for i in range(20)])})
    wait_for_checkpoint(broker, topic, 20)
    return topic


def test_jobs_run_with_spark_submit(broker: BrokerProcess, written: str, tmp_path: Path) -> None:
    import pyspark

    assert session.main([str(tmp_path)]) == 0
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [
            *(str(submit), "--master", "local[1]", "--py-files", str(tmp_path / "minikafka.zip")),
            *("--driver-memory", "512m", "--driver-java-options", QUICK_JVM, str(tmp_path / "main.py")),
            *("export", str(broker.data_dir), "--output", str(tmp_path / "out"), "--topics", written),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=environment | {"PYSPARK_PYTHON": sys.executable},
    )
    assert done.returncode == 0, done.stderr
    assert "20 records in 1 files, commit 0" in done.stdout
    assert offsets(tmp_path / "out", written) == [*range(20)]


def test_executors_of_a_cluster_get_the_package(broker: BrokerProcess, written: str, tmp_path: Path) -> None:
    """Executors that are processes of their own, and whose working directory and path do not have it."""
    script = tmp_path / "where.py"
    script.write_text(
        "import json\n"
        "from minikafka.spark.runtime.session import open_session\n"
        "def where(_):\n"
        "    import minikafka\n"
        "    return minikafka.__file__\n"
        f"conf = [('spark.driver.memory', '512m'), ('spark.driver.extraJavaOptions', '{QUICK_JVM}')]\n"
        "with open_session('where', master='local-cluster[1,1,1024]', conf=conf) as spark:\n"
        "    print(json.dumps(spark.sparkContext.parallelize([1], 1).map(where).collect()))\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout.splitlines()[-1])
    assert found.endswith("minikafka.zip/minikafka/__init__.pyc")

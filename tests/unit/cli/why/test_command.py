"""The command line of `minikafka why`: what is asked, and what is wrong with a question."""

from __future__ import annotations

import subprocess
import sys

import pytest

from minikafka.cli.why.command import SUBJECTS, main, parse_partition, parser
from minikafka.types import TopicPartition


@pytest.mark.parametrize(
    ("text", "topic", "partition"),
    [("orders:0", "orders", 0), ("orders-12", "orders", 12), ("a-1-2", "a-1", 2), ("a-1:2", "a-1", 2)],
)
def test_a_partition_as_people_type_it(text: str, topic: str, partition: int) -> None:
    assert parse_partition(text) == TopicPartition(topic, partition)


@pytest.mark.parametrize(
    "text", ["orders", "orders:", ":0", "orders:first", "orders:-1", "", "orders:99999999999"]
)
def test_what_is_no_partition(text: str) -> None:
    with pytest.raises(ValueError, match="must be TOPIC:PARTITION"):
        parse_partition(text)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "SUBJECT"),
        (["weather"], "weather"),
        (["partition", "orders"], "orders:0"),
        (["produce", "orders:first"], "orders:0"),
        (["partition", "orders:0", "sad"], "sad"),
        (["group", "g", "--sample-ms", "-1"], "--sample-ms -1"),
        (["broker", "first"], "first"),
        (["table", "orders"], "--format"),
        (["table", "orders", "--format", "parquet", "-o", "/lake"], "parquet"),
        (["table", "orders", "--format", "iceberg", "-o", "/lake"], "iceberg needs --catalog"),
        (["table", "orders", "--format", "delta"], "--output"),
        (["table", "orders", "--format", "delta", "-o", "/lake", "--catalog", "x"], "is a directory"),
    ],
)
def test_a_wrong_question_names_what_is_wrong(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2
    assert named in capsys.readouterr().err


def test_every_subject_has_somebody_who_answers() -> None:
    (subjects,) = (each for each in parser()._actions if each.dest == "subject")
    assert set(subjects.choices or ()) == set(SUBJECTS)


def test_what_opens_tables_is_imported_for_no_other_subject() -> None:
    code = "import sys; from minikafka.cli.why.command import parser; parser(); print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"pyspark", "pyarrow", "pyiceberg", "deltalake", "sqlalchemy", "minikafka.spark"}
    assert heavy.isdisjoint(result.stdout.split())

"""The records of ``__consumer_offsets`` that we write: Apache Kafka's own tool decodes every one of them."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from minikafka.cli.dump_log.command import main
from minikafka.protocol.internal.group_record_codec import encode_record
from minikafka.protocol.internal.group_records import GroupRecord
from minikafka.protocol.records.records import Record, build_batch
from tests.integration.support import java
from tests.unit.protocol.internal.test_group_record_codec import GOLDEN

pytestmark = [pytest.mark.java, pytest.mark.minikafka_only]


def decoded(text: str) -> list[tuple[str, str]]:
    """Key and value of each record, as DumpLogSegments and dump-log print them."""
    return re.findall(r"^\| offset: .* key: (.*) payload: (.*)$", text, re.MULTILINE)


def test_kafkas_tool_decodes_records_as_we_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = [record for record, _, _ in GOLDEN.values()]
    records += [GroupRecord(record.key, None) for record in records]
    long = "ü" * 300
    records += [
        GroupRecord(record.key, msgspec.structs.replace(record.value, metadata=long))
        for name, (record, _, _) in GOLDEN.items()
        if name.startswith("an offset")
    ]
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(
        build_batch([Record(i, 1000, *encode_record(record), ()) for i, record in enumerate(records)])
    )
    kafkas = java.tool(
        java.class_path(java.CLIENT_VERSIONS[-1]),
        java.NEWEST_DUMP_TOOL,
        *("--offsets-decoder", "--files", str(path)),
    )
    assert main(["--offsets-decoder", str(path)]) == 0
    ours = capsys.readouterr().out
    assert len(decoded(ours)) == len(records)
    assert decoded(kafkas) == decoded(ours)

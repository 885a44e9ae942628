"""What a job has prepared beside a log of a running broker: put in, or refused when the log has changed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from minikafka.errors import ErrorCode, KafkaError
from minikafka.files import OsFiles
from minikafka.log.checkpoint import read_offsets
from minikafka.log.unified_log import UnifiedLog
from minikafka.server.broker import Broker
from minikafka.types import TopicPartition
from tests.unit.log import cleaner_helpers
from tests.unit.server.running import running
from tests.unit.server.storage.test_log_cleaner import (
    CHECKPOINT,
    OFF,
    Stage,
    left_over,
    make_log,
    offsets,
    write,
)

AT = TopicPartition("t", 0)


def prepare(broker: Broker, log: UnifiedLog) -> str:
    return cleaner_helpers.prepare(log, now_ms=broker.services.clock.now_ms()).id


async def refused(stage: Stage, manifest_id: str, words: str) -> ErrorCode:
    with pytest.raises(KafkaError, match=re.escape(words)) as caught:
        await stage.cleaner.swap_in_staged(AT, manifest_id, validate_only=False)
    assert caught.value.message is not None
    return caught.value.code


async def test_it_is_put_in_as_a_compaction_of_the_brokers_own(tmp_path: Path) -> None:
    async with running(tmp_path, **OFF) as broker:
        log, stage = await make_log(broker), Stage(broker)
        manifest_id = prepare(broker, log)
        write(broker, "t", b"after it was prepared")
        await stage.cleaner.swap_in_staged(AT, manifest_id, validate_only=True)
        assert offsets(log) == [0, 1, 2, 3]
        await stage.cleaner.swap_in_staged(AT, manifest_id, validate_only=False)
        assert offsets(log) == [2, 3] and log.first_dirty_offset == 3 and stage.removed
        assert read_offsets(OsFiles(), str(tmp_path / CHECKPOINT)) == {AT: 3}
        assert not left_over(tmp_path / "t-0", ".cleaned", ".swap")
        assert stage.cleaner.in_progress == [] and stage.cleaner.compactions == 1
        log.validate()
        assert await refused(stage, manifest_id, "run the compaction again") is ErrorCode.INVALID_REQUEST
        assert await stage.clean() and offsets(log) == [3]


async def test_a_log_that_has_changed_refuses_it(tmp_path: Path) -> None:
    async with running(tmp_path, **OFF) as broker:
        log, stage = await make_log(broker, values=4), Stage(broker)
        manifest_id = prepare(broker, log)
        assert await refused(stage, "another", "has what job 7 has prepared, not another")
        log.truncate_to(2)
        assert await refused(stage, manifest_id, "only below")
        write(broker, "t", b"2")
        write(broker, "t", b"3")
        assert await refused(stage, manifest_id, "has changed since it was read")  # the same sizes
        manifest_id = prepare(broker, log)
        assert await stage.clean()
        assert await refused(stage, manifest_id, "are not those any more that were read")
        assert offsets(log) == [3] and not left_over(tmp_path / "t-0", ".cleaned", ".swap")


async def test_a_log_that_is_truncated_while_the_manifest_is_read_refuses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, **OFF) as broker:
        log, stage = await make_log(broker), Stage(broker)
        manifest_id = prepare(broker, log)
        run = broker.services.log_io.run

        async def run_and_truncate(work: Any) -> Any:
            manifest = await run(work)
            log.truncate_to(0)
            return manifest

        with monkeypatch.context() as patched:
            patched.setattr(broker.services.log_io, "run", run_and_truncate)
            assert await refused(stage, manifest_id, "only below 0") is ErrorCode.INVALID_REQUEST


async def test_a_compaction_under_way_comes_first(tmp_path: Path) -> None:
    async with running(tmp_path, **OFF) as broker:
        log, stage = await make_log(broker), Stage(broker)
        manifest_id = prepare(broker, log)
        answers: list[KafkaError] = []

        def ask() -> None:
            """Decided before anything is waited for."""
            request = stage.cleaner.swap_in_staged(AT, manifest_id, validate_only=False)
            with pytest.raises(KafkaError, match="is being compacted by the broker itself") as caught:
                request.send(None)
            answers.append(caught.value)

        assert await stage.clean(ask)
        assert [each.code for each in answers] == [ErrorCode.OPERATION_NOT_ATTEMPTED]
        assert offsets(log) == [2]


async def test_other_policies_and_unknown_logs_refuse_it(tmp_path: Path) -> None:
    async with running(tmp_path, **OFF) as broker:
        stage = Stage(broker)
        assert await refused(stage, "7", "no log of t-0") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await make_log(broker, cleanup_policy="delete")
        assert await refused(stage, "7", "does not have compact") is ErrorCode.INVALID_CONFIG

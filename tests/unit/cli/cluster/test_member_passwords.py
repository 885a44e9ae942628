"""Passwords of a cluster's brokers are on no command line."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from minikafka.cli.cluster.supervisor import ChildMember, MemberConfig
from minikafka.config.loader import load


async def test_a_broker_gets_its_passwords_in_a_file_of_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawned: list[str] = []

    async def spawn(*arguments: str, **_: Any) -> None:
        spawned.extend(arguments)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", spawn)
    jaas = 'a.B required password="s3cret one";'
    config = MemberConfig(
        node_id=1,
        port=9092,
        data_dir=tmp_path / "data",
        log_path=tmp_path / "broker-1.log",
        properties={"ssl.key.password": "s3cret", "sasl.jaas.config": jaas, "num.partitions": "3"},
    )
    with open(tmp_path / "log", "ab") as log:  # noqa: ASYNC230 - a test's own file
        await ChildMember(config)._spawn(log)
    assert "--set=num.partitions=3" in spawned and not any("s3cret" in each for each in spawned)
    (path,) = [each.removeprefix("--config=") for each in spawned if each.startswith("--config=")]
    assert os.stat(path).st_mode & 0o777 == 0o600
    loaded = load(path=path).config
    assert (loaded.ssl_key_password, loaded.sasl_jaas_config) == ("s3cret", jaas)

"""A deferred module is not there before its first use, and is itself from then on."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from minikafka.deferred import deferred, own_modules
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.server.apis import HANDLERS

NAME = "a_module_to_be_deferred"


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / f"{NAME}.py").write_text("count = 1\ndef counted(): return count\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop(NAME, None)


def test_it_is_imported_when_it_is_used() -> None:
    proxy = deferred(NAME)
    assert NAME in repr(proxy)
    assert NAME not in sys.modules
    assert proxy.counted() == 1
    assert NAME in sys.modules


def test_it_has_the_names_of_the_module_wherever_they_are_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    proxy, module = deferred(NAME), importlib.import_module(NAME)
    assert proxy.count == 1
    monkeypatch.setattr(module, "count", 2)
    assert proxy.count == 2
    monkeypatch.setattr(proxy, "count", 3)
    assert module.counted() == 3


def test_what_it_does_not_have_it_does_not_have() -> None:
    proxy = deferred(NAME)
    for _ in range(2):
        with pytest.raises(AttributeError, match=f"module '{NAME}' has no attribute 'missing'"):
            _ = proxy.missing
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        _ = deferred("no_such_module").anything


def test_a_running_broker_loads_ours_unless_only_a_start_can_use_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("minikafka.deferred._own", [])
    deferred("minikafka.used_later")
    deferred("minikafka.used_by_a_start", at_start_or_never=True)
    deferred("another.package")
    assert list(own_modules()) == ["minikafka.used_later"]


def test_every_api_has_a_file_with_a_handler() -> None:
    assert all(callable(handle) for handle in HANDLERS.values())
    assert set(HANDLERS) <= set(ApiKey)
    unknown = cast(ApiKey, 9999)
    assert unknown not in HANDLERS
    with pytest.raises(KeyError):
        HANDLERS[unknown]

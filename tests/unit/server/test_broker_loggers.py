"""Logger levels that change while the broker runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from minikafka.config.resource import Alteration, AlterOperation
from minikafka.errors import ErrorCode, KafkaError
from minikafka.security.acl import AUDIT_LOGGER
from minikafka.server.config_service import alter_logger_levels, logger_levels

NAME = "minikafka.server.some_part"
SET, DELETE, APPEND = AlterOperation.SET, AlterOperation.DELETE, AlterOperation.APPEND


@pytest.fixture(autouse=True)
def levels() -> Iterator[None]:
    package, logger = logging.getLogger("minikafka"), logging.getLogger(NAME)
    before = package.level
    package.setLevel(logging.WARNING)
    yield
    package.setLevel(before)
    logger.setLevel(logging.NOTSET)


def test_a_level_is_set_and_taken_back() -> None:
    assert logger_levels()["root"] == logger_levels()[NAME] == "WARN"
    alter_logger_levels([Alteration(NAME, SET, "debug")], validate_only=False)
    assert logging.getLogger(NAME).isEnabledFor(logging.DEBUG)
    assert logger_levels()[NAME] == "DEBUG"
    alter_logger_levels([Alteration(NAME, DELETE)], validate_only=False)
    assert logger_levels()[NAME] == "WARN"


def test_root_is_the_package_and_no_other_logger() -> None:
    outside = logging.getLogger().level
    alter_logger_levels([Alteration("root", SET, "ERROR")], validate_only=False)
    assert logging.getLogger("minikafka").level == logging.ERROR
    assert logging.getLogger().level == outside
    assert all(name in ("root", AUDIT_LOGGER) or name.startswith("minikafka.") for name in logger_levels())


@pytest.mark.parametrize(
    ("alteration", "code"),
    [
        (Alteration(NAME, SET, "LOUD"), ErrorCode.INVALID_CONFIG),
        (Alteration(NAME, SET, None), ErrorCode.INVALID_CONFIG),
        (Alteration("asyncio", SET, "INFO"), ErrorCode.INVALID_CONFIG),
        (Alteration(NAME, APPEND, "INFO"), ErrorCode.INVALID_REQUEST),
        (Alteration("root", DELETE), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_bad_change_changes_nothing(alteration: Alteration, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as caught:
        alter_logger_levels([Alteration(NAME, SET, "DEBUG"), alteration], validate_only=False)
    assert caught.value.code is code
    assert logger_levels()[NAME] == "WARN"


def test_validate_only_changes_nothing() -> None:
    alter_logger_levels([Alteration(NAME, SET, "DEBUG")], validate_only=True)
    assert logger_levels()[NAME] == "WARN"

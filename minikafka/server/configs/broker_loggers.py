"""The broker's loggers as configuration: their levels can be read and changed while it runs (KIP-412).

Kafka: ``LoggingController``, ``RuntimeLoggerManager``. Levels have Kafka's names (log4j's). They are not
stored: a restarted broker logs as its ``log.level`` says.

Where it differs from Kafka: ``root`` stands for the logger ``minikafka`` above all others of this package. A
broker may run inside somebody's program, whose own loggers are none of its business.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from minikafka.config.resource import Alteration, AlterOperation
from minikafka.errors import ErrorCode, KafkaError

ROOT = "root"
_PACKAGE = "minikafka"

_LEVELS = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
_NAMES = {level: name for name, level in _LEVELS.items() if name != "TRACE"}


def logger_levels() -> dict[str, str]:
    """The effective level of every logger there is, by name, sorted."""
    names = [name for name in logging.root.manager.loggerDict if name.startswith(f"{_PACKAGE}.")]
    levels = {ROOT: _level_name(_PACKAGE)}
    return levels | {name: _level_name(name) for name in sorted(names)}


def alter_logger_levels(alterations: Iterable[Alteration], *, validate_only: bool) -> None:
    """SET the level of loggers, or DELETE it, so that a logger follows its parent again.

    Raises:
        KafkaError: INVALID_REQUEST for an operation that levels do not have, INVALID_CONFIG for a level or a
            logger that does not exist; nothing is changed then.
    """
    levels: dict[str, int] = {}
    known = logger_levels()
    for alteration in alterations:
        name = alteration.name
        if alteration.operation not in (AlterOperation.SET, AlterOperation.DELETE):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Operation {alteration.operation} is not allowed for the BROKER_LOGGER resource",
            )
        if name not in known:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
        if alteration.operation == AlterOperation.SET:
            level = _LEVELS.get((alteration.value or "").upper())
            if level is None:
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG,
                    f"Cannot set the log level of {name} to {alteration.value} as it is not a supported log "
                    f"level. Valid log levels are {', '.join(_LEVELS)}",
                )
            levels[name] = level
        elif name == ROOT:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Removing the log level of the {ROOT} logger is not allowed"
            )
        else:
            levels[name] = logging.NOTSET
    if not validate_only:
        for name, level in levels.items():
            logging.getLogger(_PACKAGE if name == ROOT else name).setLevel(level)


def _level_name(logger: str) -> str:
    level = logging.getLogger(logger).getEffectiveLevel()
    return next((name for threshold, name in sorted(_NAMES.items()) if level <= threshold), "FATAL")

"""A secured broker answers as a secured Apache Kafka does: to each request of the authorisation table, before
and during a login, and where several things are wrong at once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from minikafka.errors import ErrorCode
from minikafka.protocol.wire.api_versions import BETWEEN_BROKERS, CONTROL_VALUES, ApiKey
from tests.integration.support.security_recording import (
    BETWEEN,
    RECORDED,
    as_text,
    cases,
    record,
    record_ours_between_brokers,
    rules,
    start_ours,
)
from tests.support import kafka_control_requests
from tests.support.security_differences import DIFFERENCES, SOMETIMES


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    return dict(json.loads(RECORDED.read_text()))


@pytest.mark.minikafka_only
def test_it_answers_as_apache_kafka_does_but_for_what_has_a_reason(recorded: dict[str, Any]) -> None:
    ours = json.loads(as_text(record(start_ours)))
    assert ours.keys() == recorded.keys() - {"kafka", "kafka on ZooKeeper", BETWEEN}
    for section, answers in ours.items():
        assert answers.keys() == recorded[section].keys(), f"{section}: record again"
        differing = {name for name, answer in answers.items() if answer != recorded[section][name]}
        unexplained = differing - DIFFERENCES[section].keys()
        shown = [f"{name}\n  {recorded[section][name]}\n  {answers[name]}" for name in sorted(unexplained)]
        assert not unexplained, f"{section}: Kafka, and this broker:\n" + "\n".join(shown)
        always = {name for name, reason in DIFFERENCES[section].items() if reason not in SOMETIMES}
        assert not always - differing, f"{section}: it does not differ any more"


@pytest.mark.minikafka_only
def test_brokers_among_themselves_are_answered_as_by_apache_kafka(recorded: dict[str, Any]) -> None:
    """In each of Kafka's versions; our own, 0, is not one."""
    ours = record_ours_between_brokers()
    kafkas = recorded[BETWEEN]
    assert ours.keys() == kafkas.keys(), "record again"
    differing = {
        name: (case, kafkas[name][case], by_versions)
        for name, answers in ours.items()
        for case, by_versions in answers.items()
        if of_kafka(name, by_versions) != of_kafka(name, kafkas[name][case])
    }
    assert differing.keys() == DIFFERENCES[BETWEEN].keys(), differing


def of_kafka(name: str, by_versions: dict[str, Any]) -> dict[int, Any]:
    """The answers by version, without that which is not Kafka's."""
    is_own_too = ApiKey[name.partition("-")[0]] in CONTROL_VALUES
    found = {}
    for span, answer in by_versions.items():
        first, last = map(int, span.split("-"))
        found.update(dict.fromkeys(range(first, last + 1), answer))
    return {version: answer for version, answer in found.items() if version or not is_own_too}


def test_the_table_is_what_apache_kafka_does(recorded: dict[str, Any]) -> None:
    """In each version: refused without the right, and not with it."""
    for name, rule in rules():
        is_between_brokers = rule.api in BETWEEN_BROKERS
        answers = recorded[BETWEEN if is_between_brokers else "authorization"][name]
        assert answers.keys() == cases(rule).keys(), name
        for case, by_versions in answers.items():
            versions: set[int] = set()
            for span, found in by_versions.items():
                first, last = map(int, span.split("-"))
                versions |= set(range(first, last + 1))
                codes = range(found) if isinstance(found, int) else [ErrorCode[code] for code in found]
                holds = rule.is_refused if case == "without" else rule.is_allowed
                assert holds(codes), f"{name} {case}, versions {span}: {found}"
            spoken = kafka_control_requests.versions(rule.api) if is_between_brokers else rule.spoken()
            assert versions == set(spoken), name

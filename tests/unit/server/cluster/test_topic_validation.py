"""Which topics may exist, and what an admin is told about the others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.errors import ErrorCode, KafkaError
from minikafka.server.cluster.topic_validation import (
    is_internal,
    validate_added_assignment,
    validate_new_assignment,
    validate_no_collision,
    validate_partition_count,
    validate_replication_factor,
    validate_topic_name,
)
from minikafka.types import BrokerId

BROKERS = [BrokerId(1), BrokerId(2), BrokerId(3)]


def failure(check: Callable[[], object]) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        check()
    return caught.value


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "Topic name is invalid: the empty string is not allowed"),
        (".", "Topic name is invalid: '.' is not allowed"),
        ("..", "Topic name is invalid: '..' is not allowed"),
        ("a/b", "contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("fünf", "contains one or more characters"),
        ("a b", "contains one or more characters"),
        ("a\n", "contains one or more characters"),
        ("x" * 250, "is longer than the max allowed length 249"),
    ],
)
def test_a_name_that_cannot_be_a_directory_is_refused(name: str, why: str) -> None:
    error = failure(lambda: validate_topic_name(name))
    assert error.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert why in str(error)


@given(st.text(alphabet="abcXYZ019._-", min_size=3, max_size=249))
def test_every_name_of_legal_characters_is_allowed(name: str) -> None:
    validate_topic_name(name)


def test_a_name_of_the_greatest_length_is_allowed() -> None:
    validate_topic_name("x" * 249)


def test_names_that_differ_in_dots_and_underscores_collide() -> None:
    error = failure(lambda: validate_no_collision("a.b_c", ["other", "a_b.c"]))
    assert error.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert error.message == "Topic 'a.b_c' collides with existing topic: a_b.c"
    validate_no_collision("a.b", ["a-b", "ab", "a.b"])  # itself is no collision: it already exists


def test_the_broker_keeps_its_own_state_in_internal_topics() -> None:
    assert is_internal("__consumer_offsets")
    assert not is_internal("__consumer_offset")


def test_partition_counts_are_positive_and_sane() -> None:
    for count in (0, -1, -5):
        assert failure(lambda: validate_partition_count(count)).code is ErrorCode.INVALID_PARTITIONS  # noqa: B023
    assert failure(lambda: validate_partition_count(10_001)).code is ErrorCode.POLICY_VIOLATION
    validate_partition_count(10_000)


def test_a_replication_factor_above_the_brokers_names_both() -> None:
    error = failure(lambda: validate_replication_factor(3, brokers=1))
    assert error.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert "replication factor of 3 cannot be reached because only 1 broker(s) are registered" in str(error)
    assert failure(lambda: validate_replication_factor(0, brokers=1)).code is (
        ErrorCode.INVALID_REPLICATION_FACTOR
    )


@pytest.mark.parametrize(
    ("assignments", "why"),
    [
        ({1: [1]}, "partitions should be a consecutive 0-based integer sequence"),
        ({0: [1], 2: [1]}, "partitions should be a consecutive 0-based integer sequence"),
        ({-1: [1], 0: [1]}, "partitions should be a consecutive 0-based integer sequence"),
        ({0: []}, "includes an empty replica list"),
        ({0: [9]}, "includes broker 9, but no such broker is registered"),
        ({0: [2, 2]}, "includes the broker 2 more than once"),
        ({0: [1, 2], 1: [3]}, "not consistent with previous partitions, which have 2 replica(s)"),
    ],
)
def test_a_bad_manual_assignment_is_refused(assignments: dict[int, list[int]], why: str) -> None:
    error = failure(lambda: validate_new_assignment(assignments, brokers=BROKERS))
    assert error.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert why in str(error)


def test_a_good_manual_assignment_keeps_its_order() -> None:
    assert validate_new_assignment({1: [3, 1], 0: [2, 3]}, brokers=BROKERS) == [(2, 3), (3, 1)]


def test_added_partitions_need_exactly_as_many_assignments() -> None:
    error = failure(
        lambda: validate_added_assignment([[1]], additional=2, replication_factor=1, brokers=BROKERS)
    )
    assert error.message == (
        "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified."
    )

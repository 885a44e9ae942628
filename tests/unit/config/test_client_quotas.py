"""Which quotas can be, whose they are, which one counts, and which a filter wants."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.config.client_quotas import (
    DEFAULT,
    Bound,
    MatchType,
    QuotaEntity,
    QuotaFilter,
    QuotaType,
    bound_for,
    checked_quota,
    quota_entity,
    quota_filter,
    quota_text,
    stored_quotas,
)
from minikafka.config.definition import LONG_MAX
from minikafka.errors import ErrorCode, KafkaError

PRODUCE = QuotaType.PRODUCE
ORDER = [
    QuotaEntity("u", "c"),
    QuotaEntity("u", DEFAULT),
    QuotaEntity("u"),
    QuotaEntity(DEFAULT, "c"),
    QuotaEntity(DEFAULT, DEFAULT),
    QuotaEntity(DEFAULT),
    QuotaEntity(None, "c"),
    QuotaEntity(None, DEFAULT),
]
"""Kafka's precedence for user u with client id c."""
SHARED_BY = [("u", "c"), ("u", "c"), ("u", ""), ("u", "c"), ("u", "c"), ("u", ""), ("", "c"), ("", "c")]


@given(present=st.sets(st.integers(0, 7)))
def test_the_first_of_eight_counts(present: set[int]) -> None:
    quotas = {ORDER[place]: {PRODUCE: float(place + 1)} for place in sorted(present)}
    quotas[QuotaEntity("other", "c")] = {PRODUCE: 99.0}
    quotas[QuotaEntity("u", "other")] = {PRODUCE: 99.0}
    found = bound_for(quotas, PRODUCE, user="u", client_id="c")
    first = min(present, default=None)
    assert found == (None if first is None else Bound(first + 1.0, *SHARED_BY[first]))
    assert bound_for(quotas, QuotaType.FETCH, user="u", client_id="c") is None


def test_each_quota_is_looked_for_alone() -> None:
    quotas = {ORDER[0]: {QuotaType.FETCH: 1.0}, ORDER[7]: {PRODUCE: 2.0}}
    assert bound_for(quotas, PRODUCE, user="u", client_id="c") == Bound(2, "", "c")


def test_a_client_without_an_id_has_the_defaults() -> None:
    assert bound_for({ORDER[7]: {PRODUCE: 2.0}}, PRODUCE, user="u", client_id="") == Bound(2, "", "")


@pytest.mark.parametrize("key", [quota.value for quota in QuotaType])
@pytest.mark.parametrize("value", [0.0, -1.0, -1e300, math.nan, math.inf, -math.inf, float(LONG_MAX) * 2])
def test_absurd_values_are_refused_by_name(key: str, value: float) -> None:
    with pytest.raises(KafkaError, match=f"{key} must be a finite value more than 0") as refused:
        checked_quota(key, value, of_address=QuotaType(key).is_of_addresses)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_bytes_are_whole_and_percents_need_not_be() -> None:
    with pytest.raises(KafkaError, match=r"producer_byte_rate must be a Long value, not 1\.5"):
        checked_quota("producer_byte_rate", 1.5)
    with pytest.raises(KafkaError, match="must be a Long value, not 1e-07"):
        checked_quota("consumer_byte_rate", 1e-7)
    assert checked_quota("consumer_byte_rate", 1024.0000001) == (QuotaType.FETCH, 1024)
    assert checked_quota("request_percentage", 12.5) == (QuotaType.REQUEST, 12.5)
    assert checked_quota("controller_mutation_rate", 0.1) == (QuotaType.CONTROLLER_MUTATION, 0.1)
    with pytest.raises(KafkaError, match="Invalid configuration key bytes"):
        checked_quota("bytes", 1)


def test_what_is_stored_is_kafkas_text_and_what_cannot_be_is_left_out() -> None:
    texts = {quota.value: quota_text(quota, 200.0) for quota in QuotaType}
    assert texts["producer_byte_rate"] == "200" and texts["request_percentage"] == "200.0"
    of_address = QuotaType.CONNECTION_CREATION
    assert stored_quotas(texts) == {quota: 200.0 for quota in QuotaType if quota is not of_address}
    assert stored_quotas(texts, of_address=True) == {of_address: 200.0}
    stored = {
        "producer_byte_rate": "1.0E3",
        "consumer_byte_rate": "-5",
        "request_percentage": "x",
        "SCRAM": "1",
    }
    assert stored_quotas(stored) == {PRODUCE: 1000.0}


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ([], "empty client quota entity"),
        ([("user", "")], "Empty user not supported"),
        ([("user", "a"), ("user", None)], "duplicate entity entry user"),
        ([("group", "a")], "Unhandled client quota entity type: group"),
        ([("throttle", "a")], "Unhandled client quota entity type: throttle"),
        ([("ip", "localhost")], "localhost is not a valid IP address"),
        ([("ip", "127.0.0.1"), ("user", "a")], "IP entity should not be used with user/client ID"),
    ],
)
def test_entities_that_cannot_be_are_refused(parts: Any, words: str) -> None:
    with pytest.raises(KafkaError, match=words) as refused:
        quota_entity(parts)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_an_address_has_one_form_and_its_own_quota() -> None:
    assert quota_entity([("ip", "2001:DB8:0::1")]) == QuotaEntity(ip="2001:db8::1")
    assert quota_entity([("ip", "::ffff:10.0.0.1")]) == QuotaEntity(ip="10.0.0.1"), "as connections have it"
    assert quota_entity([("ip", None)]) == QuotaEntity(ip=DEFAULT)
    with pytest.raises(KafkaError, match="Invalid configuration key producer_byte_rate"):
        checked_quota("producer_byte_rate", 1, of_address=True)
    with pytest.raises(KafkaError, match="Invalid configuration key connection_creation_rate"):
        checked_quota("connection_creation_rate", 1)


def test_a_name_that_is_spelt_like_the_default_is_a_name() -> None:
    assert quota_entity([("user", None), ("client-id", "<default>")]) == QuotaEntity(DEFAULT, "<default>")
    assert str(QuotaEntity(DEFAULT, "c")) == "user <default>, client-id c"


EXACT, DEFAULT_MATCH, ANY = MatchType.EXACT, MatchType.DEFAULT, MatchType.ANY


def found(*components: tuple[str, int, str | None], strict: bool = False) -> list[int]:
    wanted = quota_filter(components, strict=strict)
    return [place for place, entity in enumerate(ORDER) if wanted.matches(entity.parts())]


def test_a_filter_wants_a_name_the_default_or_any_and_strict_wants_no_other_part() -> None:
    assert found() == list(range(8)) and found(strict=True) == []
    assert found(("user", EXACT, "u")) == [0, 1, 2]
    assert found(("user", EXACT, "u"), strict=True) == [2]
    assert found(("user", DEFAULT_MATCH, None)) == [3, 4, 5]
    assert found(("client-id", ANY, None)) == [0, 1, 3, 4, 6, 7]
    assert found(("client-id", ANY, None), strict=True) == [6, 7]
    assert found(("user", ANY, None), ("client-id", EXACT, "c")) == [0, 3]
    assert found(("user", EXACT, "unknown")) == [] and found(("ip", ANY, None)) == []


@pytest.mark.parametrize(
    ("components", "code", "words"),
    [
        ([("", 0, "a")], "INVALID_REQUEST", "empty entity type"),
        ([("user", 0, "a"), ("user", 2, None)], "INVALID_REQUEST", "user cannot appear more than once"),
        ([("group", 0, "a")], "UNSUPPORTED_VERSION", "Unsupported entity type group"),
        ([("user", 0, None)], "INVALID_REQUEST", "MATCH_TYPE_EXACT"),
        ([("user", 1, "a")], "INVALID_REQUEST", "MATCH_TYPE_DEFAULT, but also specified a match string: a"),
        ([("user", 2, "a")], "INVALID_REQUEST", "MATCH_TYPE_SPECIFIED"),
        ([("user", 3, None)], "INVALID_REQUEST", "Unknown match type 3"),
        ([("ip", 2, None), ("user", 2, None)], "INVALID_REQUEST", "IP filter component"),
    ],
)
def test_filters_that_mean_nothing_are_refused(components: Any, code: str, words: str) -> None:
    with pytest.raises(KafkaError, match=words) as refused:
        quota_filter(components, strict=False)
    assert refused.value.code is ErrorCode[code]


def test_a_filter_is_only_names() -> None:
    assert QuotaFilter({"user": None}, strict=False).matches({"user": "a"})

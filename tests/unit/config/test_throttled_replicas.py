"""Lists of throttled replicas: what is one, and which of its entries are a broker's own."""

from __future__ import annotations

import pytest

from minikafka.config.topic import ALL, NONE, check_throttled_replicas, throttled_partitions
from minikafka.errors import ConfigError

NAME = "leader.replication.throttled.replicas"


@pytest.mark.parametrize(
    ("text", "partitions"),
    [
        ("", NONE),
        ("*", ALL),
        ("0:1", {0}),
        ("0:1,0:2,7:1,3:11", {0, 7}),
        ("0:2", NONE),
        ("007:01", {7}),
        ("0" * 5000 + ":" + "0" * 5000 + "1", {0}),
        ("2147483647:1", {2147483647}),
        ("4:1,,", {4}),
    ],
)
def test_only_the_entries_of_this_broker_count(text: str, partitions: object) -> None:
    replicas = tuple(text.split(",")) if text else ()
    check_throttled_replicas(NAME, replicas)
    assert throttled_partitions(replicas, 1) == partitions


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("0", "'0'"),
        ("0:1,1:", "'1:'"),
        (":1", "':1'"),
        ("none", "'none'"),
        ("0:1,*", "'*'"),
        ("*,*", "'*'"),
        ("**", "'**'"),
        ("0:1:2", "'0:1:2'"),
        ("-1:1", "'-1:1'"),
        ("0:+1", "'0:+1'"),
        ("٣:1", "'٣:1'"),
        ("2147483648:1", "'2147483648:1'"),
        ("0:1,,1:1", "an entry that is empty"),
        ("1:" + "9" * 10_000, "999"),
    ],
)
def test_what_is_wrong_with_a_list_is_named(text: str, named: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_throttled_replicas(NAME, text.split(","))
    assert named in str(refused.value) and NAME in str(refused.value)

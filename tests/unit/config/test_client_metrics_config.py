"""What can be set for a client metrics subscription."""

from __future__ import annotations

import pytest

from minikafka.config.client_metrics import ClientMetricsConfig, client_metrics_config
from minikafka.errors import ErrorCode, KafkaError


def test_a_subscription_is_read_from_its_texts() -> None:
    config = client_metrics_config(
        {"metrics": "org.apache.kafka.consumer., *", "interval.ms": "100", "match": "client_id = app-[0-9]+"}
    )
    assert config == ClientMetricsConfig(
        metrics=("org.apache.kafka.consumer.", "*"), interval_ms=100, match=("client_id = app-[0-9]+",)
    )
    assert config.patterns()["client_id"].fullmatch("app-17")
    assert client_metrics_config({}) == ClientMetricsConfig(metrics=(), interval_ms=300_000, match=())


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("push.interval", "1", ErrorCode.INVALID_REQUEST),
        ("interval.ms", "99", ErrorCode.INVALID_REQUEST),
        ("interval.ms", "3600001", ErrorCode.INVALID_REQUEST),
        ("interval.ms", "often", ErrorCode.INVALID_CONFIG),
        ("match", "client_id", ErrorCode.INVALID_CONFIG),
        ("match", "client_id=", ErrorCode.INVALID_CONFIG),
        ("match", "client_id=a=b", ErrorCode.INVALID_CONFIG),
        ("match", "client_name=a", ErrorCode.INVALID_CONFIG),
        ("match", "client_id=[", ErrorCode.INVALID_CONFIG),
        ("match", r"client_id=(a)\1", ErrorCode.INVALID_CONFIG),
        ("match", "client_id=" + "a" * 2_001, ErrorCode.INVALID_CONFIG),
        ("match", "client_id=a,nonsense", ErrorCode.INVALID_CONFIG),
    ],
)
def test_kafkas_codes_for_what_is_wrong(name: str, text: str, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as caught:
        client_metrics_config({name: text})
    assert caught.value.code is code
    assert text.split(",")[-1] in str(caught.value.message) or name in str(caught.value.message)


def test_a_hostile_pattern_costs_no_more_than_any_other() -> None:
    """``re`` would need longer than the universe has lasted."""
    pattern = client_metrics_config({"match": "client_id=(a+)+b"}).patterns()["client_id"]
    assert pattern.fullmatch("a" * 200) is None
    assert pattern.fullmatch("a" * 200 + "b") is not None

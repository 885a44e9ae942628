"""``trace.otlp.endpoint`` and ``trace.otlp.headers``."""

from __future__ import annotations

import pytest

from minikafka.config.broker import BROKER_CONFIG_KEYS, BrokerConfig, broker_config
from minikafka.config.definition import ConfigType
from minikafka.errors import ConfigError


def config(**properties: str) -> BrokerConfig:
    return broker_config({f"trace.otlp.{name}": value for name, value in properties.items()})


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://localhost:4318", "http://localhost:4318/v1/traces"),
        ("https://tempo.example/", "https://tempo.example/v1/traces"),
        ("http://[::1]:4318/otlp/v1/traces", "http://[::1]:4318/otlp/v1/traces"),
    ],
)
def test_a_url_without_a_path_gets_the_usual_one(given: str, url: str) -> None:
    assert config(endpoint=given).otlp_url() == url


def test_there_is_none_unless_it_is_set() -> None:
    assert config().otlp_url() is None and config().otlp_headers() == {}


@pytest.mark.parametrize(
    "given", ["localhost:4318", "ftp://localhost", "http://", "http://a:b", "http://a:0"]
)
def test_what_is_no_url_is_refused(given: str) -> None:
    with pytest.raises(ConfigError, match=r"trace\.otlp\.endpoint: must be a URL like"):
        config(endpoint=given)


def test_headers_are_percent_encoded_and_secret() -> None:
    found = config(headers="authorization=Basic%20YTpi, x-scope = one=two,")
    assert found.otlp_headers() == {"authorization": "Basic YTpi", "x-scope": "one=two"}
    assert BROKER_CONFIG_KEYS["trace.otlp.headers"].type is ConfigType.PASSWORD


@pytest.mark.parametrize(
    "given", ["secret-token", "=secret-token", "a b=secret-token", "a=secret-token%0d%0ab"]
)
def test_bad_headers_are_refused_without_what_they_say(given: str) -> None:
    with pytest.raises(ConfigError, match=r"trace\.otlp\.headers: must be NAME=VALUE") as refused:
        config(headers=given)
    assert "secret-token" not in str(refused.value)

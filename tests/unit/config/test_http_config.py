"""The HTTP port's properties: TLS under a listener's names, tokens, users, and what contradicts itself."""

from __future__ import annotations

import pytest

from minikafka.config.broker import broker_config
from minikafka.config.security import HIDDEN
from minikafka.errors import ConfigError


def test_plain_http_unless_there_is_a_key_store() -> None:
    assert broker_config({}).http_tls() is None
    assert broker_config({}).http_scheme() == "http"


def test_tls_has_a_listeners_names() -> None:
    config = broker_config(
        {
            "http.ssl.keystore.type": "PEM",
            "http.ssl.keystore.location": "/etc/minikafka/http.pem",
            "http.ssl.client.auth": "required",
            "ssl.truststore.location": "/etc/minikafka/another-listeners.pem",
        }
    )
    security = config.http_tls()
    assert security is not None
    assert security.ssl_keystore_type == "PEM"
    assert security.ssl_keystore_location == "/etc/minikafka/http.pem"
    assert security.ssl_client_auth == "required"
    assert security.ssl_truststore_location is None
    assert config.http_scheme() == "https"


def test_tokens_and_users_are_taken_apart() -> None:
    config = broker_config(
        {
            "http.bearer.token": "abc.DEF-1, next_one==",
            "http.basic.auth.users": r"ops:p\,ss:word, dev:x",
        }
    )
    assert config.http_bearer_tokens() == ("abc.DEF-1", "next_one==")
    assert config.http_basic_users() == (("ops", "p,ss:word"), ("dev", "x"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("http.bearer.token", "two words"),
        ("http.bearer.token", "ümlaut"),
        ("http.basic.auth.users", "nobody"),
        ("http.basic.auth.users", ":secret"),
        ("http.basic.auth.users", "ops:"),
        ("http.basic.auth.users", "ops:one,ops:two"),
    ],
)
def test_what_is_no_secret_is_refused_without_being_told(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=rf"configuration {name}: ") as refused:
        broker_config({name: value})
    assert HIDDEN in str(refused.value)
    assert value not in str(refused.value)


@pytest.mark.parametrize(
    "name", ["http.ssl.client.auth", "http.ssl.truststore.location", "http.ssl.key.password"]
)
def test_tls_without_a_key_store_names_what_is_missing(name: str) -> None:
    value = "required" if name.endswith("auth") else "x"
    with pytest.raises(ConfigError, match=rf"{name} is set, .*http\.ssl\.keystore\.location"):
        broker_config({name: value})


def test_secrets_are_not_in_the_repr() -> None:
    config = broker_config({"http.bearer.token": "sesame", "http.basic.auth.users": "ops:sesame"})
    assert "sesame" not in repr(config)

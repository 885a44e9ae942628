"""The client's side of every mechanism. Kafka: ``javax.security.sasl.SaslClient``, ``LoginModule``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from minikafka.errors import ConfigError
from minikafka.security.jaas import LOGIN_MODULES
from minikafka.security.sasl.oauthbearer import OAuthBearerClient, unsecured_extensions
from minikafka.security.sasl.plain import PlainClient
from minikafka.security.sasl.scram import TOKEN_AUTH, ScramClient


class SaslClient(Protocol):
    """One authentication. What ``first`` returns is sent; then what ``next`` returns for each answer, until
    that is None."""

    mechanism: str
    is_complete: bool
    """Whether the server has proved what it has to."""

    def first(self) -> bytes:
        """The first message."""
        ...

    def next(self, challenge: bytes) -> bytes | None:
        """What to send after the server's answer ``challenge``; None: nothing more.

        Of SCRAM it derives a key, which takes milliseconds: call it in a thread.

        Raises:
            SaslError: the server could not prove what it should, or does not speak the mechanism.
        """
        ...


def sasl_client(
    mechanism: str,
    options: Mapping[str, str],
    *,
    nonce: Callable[[], str],
    token: str | None = None,
) -> SaslClient:
    """The client of ``mechanism``, with the ``options`` of its login module.

    ``nonce`` gives random printable characters without a comma. ``token``: what OAUTHBEARER logs in with.

    Raises:
        ConfigError: an option is missing, or the mechanism is unknown.
    """
    if mechanism == "OAUTHBEARER":
        if token is None:
            raise ConfigError("OAUTHBEARER needs a token: set sasl.oauthbearer.token.endpoint.url")
        return OAuthBearerClient(token, unsecured_extensions(options))
    if mechanism not in LOGIN_MODULES:
        raise ConfigError(f"SASL mechanism {mechanism} is not supported: {', '.join(LOGIN_MODULES)} are")
    username, password = _needed(options, "username", mechanism), _needed(options, "password", mechanism)
    if mechanism == "PLAIN":
        if "\0" in username + password:
            raise ConfigError("the username and the password of PLAIN cannot have a NUL in them")
        return PlainClient(username, password)
    is_token = options.get(TOKEN_AUTH, "").lower() == "true"
    return ScramClient(mechanism, username, password, nonce=nonce(), is_token=is_token)


def _needed(options: Mapping[str, str], name: str, mechanism: str) -> str:
    value = options.get(name)
    if not value:
        raise ConfigError(f"the option {name} is missing in sasl.jaas.config, which {mechanism} needs")
    return value

"""Who a client is. Kafka: ``KafkaPrincipal``."""

from __future__ import annotations

from typing import NamedTuple

from minikafka.errors import ConfigError

USER = "User"


class KafkaPrincipal(NamedTuple):
    """``type`` is ``User`` for all that log in. ``token_id``: of the delegation token that it logged in with;
    it makes no difference to what ACLs say."""

    type: str
    name: str
    token_id: str = ""

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = KafkaPrincipal(USER, "ANONYMOUS")
"""Of a connection without authentication (``KafkaPrincipal.ANONYMOUS``)."""


def parse_principal(text: str) -> KafkaPrincipal:
    """``Type:name`` (``SecurityUtils.parseKafkaPrincipal``).

    Raises:
        ConfigError: it has no such form.
    """
    type_, separator, name = text.partition(":")
    if not separator or not type_:
        raise ConfigError(f"expected a string in format principalType:principalName but got {text}")
    return KafkaPrincipal(type_, name)


def parse_super_users(text: str) -> frozenset[KafkaPrincipal]:
    """``super.users``: ``User:NAME``, several with semicolons.

    Raises:
        ConfigError: an entry has no such form.
    """
    return frozenset(parse_principal(each.strip()) for each in text.split(";") if each.strip())

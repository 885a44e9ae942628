"""What an authorizer is made of: the class that is named, and the super users."""

from __future__ import annotations

import logging

import pytest

from minikafka.config.broker import broker_config
from minikafka.server.security.acl_authorizer import CLASS_NAMES, authorizer_data


@pytest.mark.parametrize(
    ("super_users", "is_warned"),
    [
        ("User:admin;User:broker", False),
        ("User:CN=broker,O=Example;User:admin", False),
        ("User:admin,User:broker", True),
        ("User:admin, User:broker", True),
    ],
)
def test_super_users_with_commas_between_are_warned_of(
    super_users: str, is_warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    config = broker_config({"authorizer.class.name": CLASS_NAMES[0], "super.users": super_users})
    with caplog.at_level(logging.WARNING):
        authorizer_data(config)
    assert ("several are separated by semicolons" in caplog.text) is is_warned

"""The requests about security, in great numbers: by who may make them, and by who may not."""

from __future__ import annotations

from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.protocol.wire.codec import Body
from tests.hostile.secured import PASSWORD, USER, Peer, secured
from tests.integration.support.process import BrokerProcess

ANY, LITERAL, TOPIC, READ, ALLOW = 1, 3, 2, 3, 3
CLUSTER_AUTHORIZATION_FAILED = 31
A_REQUEST = 250
CONNECTIONS = 8


def acls(first: int, count: int) -> Body:
    return {
        "creations": [
            {
                "resource_type": TOPIC,
                "resource_name": f"topic-{index}",
                "resource_pattern_type": LITERAL,
                "principal": f"User:user-{index}",
                "host": "*",
                "operation": READ,
                "permission_type": ALLOW,
            }
            for index in range(first, first + count)
        ]
    }


def any_acl(**changed: object) -> Body:
    return {
        "resource_type_filter": ANY,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    } | changed


def make_acls(broker: BrokerProcess, short: bool) -> None:
    """10,000 of them."""
    with Peer("PLAINTEXT") as peer:
        for first in range(0, 500 if short else 10_000, A_REQUEST):
            answer = peer.ask(ApiKey.CREATE_ACLS, 2, acls(first, A_REQUEST))
            assert {each.error_code for each in answer.results} == {0}


def describe_acls(broker: BrokerProcess, short: bool) -> str:
    peers = [Peer("PLAINTEXT") for _ in range(CONNECTIONS)]
    count = 0
    try:
        for _ in range(2 if short else 20):
            for peer in peers:
                peer.send(ApiKey.DESCRIBE_ACLS, 2, any_acl())
            for peer in peers:
                count += sum(len(each.acls) for each in peer.receive(ApiKey.DESCRIBE_ACLS, 2).resources)
    finally:
        for peer in peers:
            peer.close()
    assert count
    return f"{count} ACLs described"


def delete_acls(broker: BrokerProcess, short: bool) -> str:
    """Each of them looks at all ACLs."""
    filters = [any_acl(principal_filter=f"User:nobody-{index}") for index in range(200 if short else 2_000)]
    with Peer("PLAINTEXT") as peer:
        answer = peer.ask(ApiKey.DELETE_ACLS, 2, {"filters": filters})
    assert {each.error_code for each in answer.filter_results} == {0}
    return f"{len(filters)} filters"


def create_acls(broker: BrokerProcess, short: bool) -> str:
    count = 200 if short else 5_000
    with Peer("PLAINTEXT") as peer:
        answer = peer.ask(ApiKey.CREATE_ACLS, 2, acls(100_000, count))
    assert len(answer.results) == count
    return f"{count} in one request"


def scram_credentials(broker: BrokerProcess, short: bool) -> str:
    """Made, and described all at once."""
    count = 100 if short else 2_000
    upsertions = [
        {
            "name": f"user-{index}",
            "mechanism": 1,
            "iterations": 16384,
            "salt": b"s" * 20,
            "salted_password": b"p" * 32,
        }
        for index in range(count)
    ]
    with Peer("PLAINTEXT") as peer:
        body = {"deletions": [], "upsertions": upsertions}
        answer = peer.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, body)
        assert len(answer.results) == count
        for _ in range(3):
            described = peer.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": None})
            assert len(described.results) == count
    return f"{count} made and described"


def broken_stores(broker: BrokerProcess, short: bool) -> str:
    """A certificate that is none is refused, and the one in use is used on."""
    config = {"name": "listener.name.ssl.ssl.keystore.key", "config_operation": 0, "value": "x" * 10_000}
    resource = {"resource_type": 4, "resource_name": "1", "configs": [config]}
    with Peer("PLAINTEXT") as peer:
        for _ in range(20 if short else 200):
            body = {"resources": [resource], "validate_only": False}
            (answer,) = peer.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, body).responses
            assert answer.error_code, "a broken store was taken"
    with Peer("SSL") as peer:
        assert peer.ask(ApiKey.API_VERSIONS, 0, {}).error_code == 0
    return "each was refused"


def delegation_tokens(broker: BrokerProcess, short: bool) -> str:
    """A user makes hundreds: each is one that the store keeps."""
    body = {
        "owner_principal_type": None,
        "owner_principal_name": None,
        "renewers": [],
        "max_lifetime": 60_000,
    }
    made, count = 0, 30 if short else 1_000
    with Peer("SASL_PLAINTEXT") as peer:
        assert peer.log_in("PLAIN") == 0
        for _ in range(count):
            peer.send(ApiKey.CREATE_DELEGATION_TOKEN, 3, body)
        for _ in range(count):
            made += peer.receive(ApiKey.CREATE_DELEGATION_TOKEN, 3).error_code == 0
    return f"{made} of {count} made"


def without_a_right(broker: BrokerProcess, short: bool) -> str:
    """Who may do nothing is told so, for one ACL as for thousands."""
    upsertion = {
        "name": USER,
        "mechanism": 1,
        "iterations": 4096,
        "salt": b"s" * 20,
        "salted_password": b"p" * 32,
    }
    config = {"name": "super.users", "config_operation": 0, "value": f"User:{USER}"}
    resource = {"resource_type": 4, "resource_name": "1", "configs": [config]}
    with Peer("SASL_SSL") as peer:
        assert peer.log_in("PLAIN", password=PASSWORD) == 0
        for _ in range(2 if short else 50):
            answers = [
                peer.ask(ApiKey.DESCRIBE_ACLS, 2, any_acl()),
                *peer.ask(ApiKey.CREATE_ACLS, 2, acls(0, A_REQUEST)).results,
                *peer.ask(ApiKey.DELETE_ACLS, 2, {"filters": [any_acl()] * 100}).filter_results,
                *peer.ask(
                    ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, {"deletions": [], "upsertions": [upsertion]}
                ).results,
                peer.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": None}),
                *peer.ask(
                    ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False}
                ).responses,
            ]
            assert {each.error_code for each in answers} == {CLUSTER_AUTHORIZATION_FAILED}
    return f"{len(answers)} times refused"


ATTACKS = [
    secured("DescribeAcls of 10,000 over 8 connections", describe_acls, prepare=make_acls),
    secured("DeleteAcls with 2,000 filters", delete_acls, prepare=make_acls),
    secured("5,000 ACLs in one request", create_acls),
    secured("SCRAM credentials of 2,000 users", scram_credentials),
    secured("stores that are broken", broken_stores),
    secured("1,000 delegation tokens", delegation_tokens),
    secured("security's requests without a right", without_a_right),
]

"""Requests whose answers are compared with Apache Kafka's, as data: logins that fail, credentials and tokens
that cannot be, and what is refused first where several things are wrong.

An exchange is a new connection of a user, or of none yet, to a listener, and its requests in a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from minikafka.protocol.wire.api_versions import ApiKey
from tests.support.authorization_table import ABSENT, DOOMED, OWNER, TOPIC

NOBODY, DESCRIBER = "user-0", "describer"
"""One who has no right, and one who may describe TOPIC."""


class Asked(NamedTuple):
    api: ApiKey
    version: int
    body: Mapping[str, Any]
    at: tuple[str, ...]
    """Which fields of the answer are compared."""


class Exchange(NamedTuple):
    name: str
    listener: str
    user: str | None
    asked: tuple[Asked, ...]
    in_any_order: bool = False
    """Kafka's own order is that of a hash."""


def _shake(mechanism: str, version: int = 1) -> Asked:
    return Asked(ApiKey.SASL_HANDSHAKE, version, {"mechanism": mechanism}, ("error_code", "mechanisms[]"))


def _authenticate(data: bytes, version: int = 2) -> Asked:
    return Asked(ApiKey.SASL_AUTHENTICATE, version, {"auth_bytes": data}, ("error_code", "error_message"))


_API_VERSIONS = Asked(
    ApiKey.API_VERSIONS,
    4,
    {"client_software_name": "tests", "client_software_version": "1"},
    ("error_code",),
)
_ELSEWHERE = Asked(
    ApiKey.API_VERSIONS,
    5,
    {**_API_VERSIONS.body, "cluster_id": "another", "node_id": 1},
    ("error_code",),
)
"""From a client that means a broker of another cluster (KIP-1242)."""
_SOMEWHERE = Asked(ApiKey.API_VERSIONS, 5, _API_VERSIONS.body, ("error_code",))
_SASL, _PLAINTEXT = "SASL_PLAINTEXT", "PLAINTEXT"
_RIGHT = b"\0user-0\0a long secret"

_LOGINS = (
    Exchange("a login", _SASL, None, (_API_VERSIONS, _shake("PLAIN"), _authenticate(_RIGHT), _API_VERSIONS)),
    Exchange("an unknown mechanism", _SASL, None, (_shake("CRAM-MD5"), _shake("PLAIN"))),
    Exchange("an unknown mechanism, version 0", _SASL, None, (_shake("CRAM-MD5", 0),)),
    Exchange("two handshakes", _SASL, None, (_shake("PLAIN"), _shake("PLAIN"))),
    Exchange("API versions of any broker", _PLAINTEXT, None, (_SOMEWHERE, _SOMEWHERE)),
    Exchange("API versions of another broker", _PLAINTEXT, None, (_ELSEWHERE, _SOMEWHERE)),
    Exchange("API versions of another broker after the login", _SASL, NOBODY, (_ELSEWHERE, _SOMEWHERE)),
    Exchange("API versions of another broker before the login", _SASL, None, (_ELSEWHERE,)),
    Exchange("API versions twice", _SASL, None, (_API_VERSIONS, _API_VERSIONS)),
    Exchange("API versions between handshake and login", _SASL, None, (_shake("PLAIN"), _API_VERSIONS)),
    Exchange("a login without a handshake", _SASL, None, (_authenticate(_RIGHT),)),
    Exchange(
        "a wrong password", _SASL, None, (_shake("PLAIN"), _authenticate(b"\0user-0\0no"), _API_VERSIONS)
    ),
    *(
        Exchange(f"a wrong password, version {version}", _SASL, None, (_shake("PLAIN"), wrong))
        for version in (0, 1)
        for wrong in (_authenticate(b"\0user-0\0no", version),)
    ),
    *(
        Exchange(name, _SASL, None, (_shake("PLAIN"), _authenticate(data)))
        for name, data in {
            "an unknown user": b"\0nobody\0a long secret",
            "a user without a name": b"\0\0a long secret",
            "a user without a password": b"\0user-0\0",
            "another authorisation id": b"admin\0user-0\0a long secret",
            "the same authorisation id": b"user-0\0user-0\0a long secret",
            "no PLAIN message": b"user-0",
            "a PLAIN message of four parts": b"\0user-0\0a\0b",
            "an empty PLAIN message": b"",
            "a PLAIN message that is no UTF-8": b"\0\xff\xfe\0no",
        }.items()
    ),
    *(
        Exchange(name, _SASL, None, (_shake("SCRAM-SHA-256"), _authenticate(data)))
        for name, data in {
            "an unknown SCRAM user": b"n,,n=nobody,r=abc",
            "a SCRAM message that is none": b"hello",
            "a SCRAM message with channel binding": b"p=tls-unique,,n=nobody,r=abc",
            "an empty SCRAM message": b"",
        }.items()
    ),
    Exchange("a handshake after the login", _SASL, NOBODY, (_shake("PLAIN"),)),
    Exchange("an authentication after the login", _SASL, NOBODY, (_authenticate(_RIGHT),)),
    Exchange("a handshake on PLAINTEXT", _PLAINTEXT, None, (_shake("PLAIN"), _API_VERSIONS)),
    Exchange("a handshake on PLAINTEXT, version 0", _PLAINTEXT, None, (_shake("PLAIN", 0),)),
    Exchange("an authentication on PLAINTEXT", _PLAINTEXT, None, (_authenticate(_RIGHT), _API_VERSIONS)),
)


def _upsertion(name: str = "alice", **fields: Any) -> Mapping[str, Any]:
    proper = {"mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": bytes(32)}
    return {"name": name, **proper, **fields}


def _alter_scram(name: str, upsertions: tuple[Any, ...] = (), deletions: tuple[Any, ...] = ()) -> Exchange:
    body = {"upsertions": list(upsertions), "deletions": list(deletions)}
    fields = ("results[].user", "results[].error_code", "results[].error_message")
    asked = Asked(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, body, fields)
    return Exchange(f"SCRAM: {name}", _SASL, "admin", (asked,), in_any_order=True)


def _describe_scram(name: str, users: list[str] | None) -> Exchange:
    body = {"users": None if users is None else [{"name": user} for user in users]}
    at = ("results[].user", "results[].error_code", "results[].error_message")
    asked = Asked(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, body, at)
    overall = asked._replace(at=("error_code", "error_message"))
    return Exchange(f"SCRAM: describe {name}", _SASL, "admin", (overall, asked), in_any_order=True)


_GONE = {"name": "alice", "mechanism": 1}
_SCRAM = (
    _alter_scram("an unknown mechanism", (_upsertion(mechanism=0), _upsertion("bob", mechanism=9))),
    _alter_scram("to delete an unknown mechanism", (), ({**_GONE, "mechanism": 0},)),
    *(
        _alter_scram(f"{iterations} iterations", (_upsertion(iterations=iterations),))
        for iterations in (-1, 0, 4095, 16_385)
    ),
    _alter_scram("an empty name", (_upsertion(""),)),
    _alter_scram("to delete of an empty name", (), ({**_GONE, "name": ""},)),
    _alter_scram("the same twice", (_upsertion(), _upsertion(), _upsertion("bob", iterations=1))),
    _alter_scram("to set and to delete", (_upsertion(),), (_GONE,)),
    _alter_scram("to delete twice", (), (_GONE, _GONE)),
    _alter_scram("to delete what is not there", (), (_GONE,)),
    _alter_scram("no salt", (_upsertion("saltless", salt=b""),)),
    _alter_scram("a salted password that is too short", (_upsertion("short", salted_password=b"p"),)),
    _alter_scram("one good and one bad of a user", (_upsertion(), _upsertion(mechanism=2, iterations=1))),
    _alter_scram("nothing"),
    _alter_scram("a good one", (_upsertion("carol"),)),
    _alter_scram("to delete it again", (), ({**_GONE, "name": "carol"},)),
    _describe_scram("what is not there", ["alice"]),
    _describe_scram("an empty name", [""]),
    _describe_scram("the same twice", ["alice", "alice"]),
)

_OWN = {"owner_principal_type": None, "owner_principal_name": None, "max_lifetime": -1}
_CODE = ("error_code",)


def _tokens(name: str, listener: str, user: str | None) -> Exchange:
    unknown = {"hmac": b"no token", "renew_period": -1, "expiry_time_period": -1}
    mine = {"owners": [{"principal_type": "User", "principal_name": NOBODY}]}
    asked = (
        Asked(ApiKey.RENEW_DELEGATION_TOKEN, 2, unknown, _CODE),
        Asked(ApiKey.EXPIRE_DELEGATION_TOKEN, 2, unknown, _CODE),
        Asked(ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, mine, (*_CODE, "tokens[].principal_name")),
        Asked(ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, {"owners": []}, (*_CODE, "tokens[].principal_name")),
        Asked(ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, {"owners": None}, (*_CODE, "tokens[].principal_name")),
        *(
            Asked(ApiKey.CREATE_DELEGATION_TOKEN, version, body, _CODE)
            for version, body in (
                (1, {"renewers": [{"principal_type": "Group", "principal_name": "g"}], "max_lifetime": -1}),
                (3, _OWN | {"renewers": [{"principal_type": "Group", "principal_name": "g"}]}),
                (
                    3,
                    {
                        "owner_principal_type": "Group",
                        "owner_principal_name": "g",
                        "renewers": [],
                        "max_lifetime": -1,
                    },
                ),
                (
                    3,
                    {
                        "owner_principal_type": "User",
                        "owner_principal_name": "",
                        "renewers": [{"principal_type": "Group", "principal_name": "g"}],
                        "max_lifetime": -1,
                    },
                ),
            )
        ),
    )
    return Exchange(name, listener, user, asked)


_TOKENS = (
    _tokens("tokens", _SASL, NOBODY),
    _tokens("tokens of an admin", _SASL, "admin"),
    _tokens("tokens of their owner", _SASL, OWNER.removeprefix("User:")),
    _tokens("tokens on PLAINTEXT", _PLAINTEXT, None),
)
WITHOUT_SECRET_KEY: Final = (
    _tokens("tokens without a secret key", _SASL, NOBODY),
    _tokens("tokens without a secret key, on PLAINTEXT", _PLAINTEXT, None),
)
"""Of a broker that has no delegation.token.secret.key."""


def _configs(name: str, user: str, *resources: tuple[int, str, list[tuple[str, str | None]]]) -> Exchange:
    body = {
        "resources": [
            {
                "resource_type": kind,
                "resource_name": resource,
                "configs": [{"name": key, "value": value, "config_operation": 0} for key, value in configs],
            }
            for kind, resource, configs in resources
        ],
        "validate_only": True,
    }
    at = ("responses[].resource_name", "responses[].error_code")
    asked = tuple(Asked(api, 1, body, at) for api in (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS))
    return Exchange(f"configs: {name}, {user}", _SASL, user, asked, in_any_order=True)


_FIRST = tuple(
    exchange
    for user in (NOBODY, "admin")
    for exchange in (
        _configs("an unknown property", user, (2, TOPIC, [("no.such", "1")])),
        _configs("a bad value", user, (2, TOPIC, [("retention.ms", "soon")])),
        _configs("no value", user, (2, TOPIC, [("retention.ms", None)])),
        _configs("a property twice", user, (2, TOPIC, [("retention.ms", "1"), ("retention.ms", "2")])),
        _configs("a topic twice", user, *2 * ((2, TOPIC, [("retention.ms", "1")]),)),
        _configs("a topic that is not there", user, (2, ABSENT, [("retention.ms", "1")])),
        _configs("a topic without a name", user, (2, "", [("retention.ms", "1")])),
        _configs("a broker that is not there", user, (4, "99", [("log.cleaner.threads", "1")])),
        _configs("a broker that is no number", user, (4, "x", [("log.cleaner.threads", "1")])),
        _configs("a property that is fixed", user, (4, "1", [("broker.rack", "r")])),
        _configs("an unknown property of a broker", user, (4, "1", [("no.such", "1")])),
        _configs("a bad value of a broker", user, (4, "", [("log.cleaner.threads", "many")])),
        _configs("no value of a broker", user, (4, "", [("log.cleaner.threads", None)])),
        _configs("a broker twice", user, *2 * ((4, "1", [("log.cleaner.threads", "1")]),)),
        _configs("a logger", user, (8, "1", [("no.such.Logger", "LOUD")])),
        _configs("an unknown kind", user, (77, "1", [("a", "1")])),
        Exchange(
            f"topics to delete, {user}",
            _SASL,
            user,
            (
                Asked(
                    ApiKey.DELETE_TOPICS,
                    5,
                    {"topic_names": [ABSENT, DOOMED, ABSENT, "other", ""], "timeout": 10_000},
                    ("responses[].name", "responses[].error_code"),
                ),
                Asked(
                    ApiKey.DELETE_TOPICS,
                    6,
                    {
                        "topics": [{"name": each, "topic_id": None} for each in (ABSENT, ABSENT, None)],
                        "timeout": 10_000,
                    },
                    ("responses[].name", "responses[].error_code"),
                ),
            ),
            in_any_order=True,
        ),
        Exchange(
            f"topics to create, {user}",
            _SASL,
            user,
            tuple(
                Asked(
                    ApiKey.CREATE_TOPICS,
                    7,
                    {
                        "topics": [
                            {
                                "name": name,
                                "num_partitions": 1,
                                "replication_factor": 1,
                                "assignments": [],
                                "configs": [],
                            }
                            for name in names
                        ],
                        "timeout": 10_000,
                        "validate_only": True,
                    },
                    ("topics[].name", "topics[].error_code"),
                )
                for names in ([TOPIC, "new", "bad name"], ["new", "new"], ["__cluster_metadata"])
            ),
            in_any_order=True,
        ),
        Exchange(
            f"partitions to create, {user}",
            _SASL,
            user,
            (
                Asked(
                    ApiKey.CREATE_PARTITIONS,
                    3,
                    {
                        "topics": [
                            {"name": name, "count": 1, "assignments": None}
                            for name in (TOPIC, ABSENT, "other", "other")
                        ],
                        "timeout": 10_000,
                        "validate_only": True,
                    },
                    ("results[].name", "results[].error_code"),
                ),
            ),
            in_any_order=True,
        ),
        Exchange(
            f"reassignments, {user}",
            _SASL,
            user,
            (
                Asked(
                    ApiKey.LIST_PARTITION_REASSIGNMENTS,
                    0,
                    {
                        "topics": [{"name": name, "partition_indexes": [0]} for name in (TOPIC, ABSENT)],
                        "timeout": 1000,
                    },
                    ("error_code", "topics[].name"),
                ),
            ),
        ),
        Exchange(
            f"topics by page, {user}",
            _SASL,
            user,
            (
                Asked(
                    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
                    0,
                    {
                        "topics": [{"name": name} for name in ("z", TOPIC, "b", "bad name")],
                        "response_partition_limit": 10,
                        "cursor": None,
                    },
                    ("topics[].name", "topics[].error_code"),
                ),
            ),
        ),
    )
) + tuple(
    Exchange(
        f"topics by page, who may describe {TOPIC}",
        _SASL,
        DESCRIBER,
        (
            Asked(
                ApiKey.DESCRIBE_TOPIC_PARTITIONS,
                0,
                {
                    "topics": [{"name": name} for name in ("z", TOPIC, "b", "bad name")],
                    "response_partition_limit": limit,
                    "cursor": None,
                },
                ("topics[].name", "topics[].error_code"),
            ),
        ),
    )._replace(name=f"topics by page, who may describe {TOPIC}, {limit} partitions")
    for limit in (1, 10)
)


def _acl(**fields: Any) -> Mapping[str, Any]:
    proper = {
        "resource_type": 2,
        "resource_name": "acl",
        "resource_pattern_type": 3,
        "principal": "User:nobody",
        "host": "*",
        "operation": 3,
        "permission_type": 2,
    }
    return proper | fields


def _create_acls(name: str, *creations: Mapping[str, Any]) -> Exchange:
    asked = Asked(ApiKey.CREATE_ACLS, 3, {"creations": list(creations)}, ("results[].error_code",))
    return Exchange(f"ACLs: {name}", _SASL, "admin", (asked,))


_ACLS = (
    _create_acls("of any type", _acl(resource_type=1)),
    _create_acls("of an unknown type", _acl(resource_type=77)),
    _create_acls("of any pattern", _acl(resource_pattern_type=1)),
    _create_acls("of a matching pattern", _acl(resource_pattern_type=2)),
    _create_acls("of any operation", _acl(operation=1)),
    _create_acls("of any permission", _acl(permission_type=1)),
    _create_acls("of another cluster", _acl(resource_type=4)),
    _create_acls("without a name", _acl(resource_name="")),
    _create_acls("with a slash", _acl(resource_name="a/b")),
    _create_acls("of no principal", _acl(principal="nobody")),
    _create_acls("of a principal without a name", _acl(principal="")),
    _create_acls("of no host", _acl(host="")),
    _create_acls("one good, one bad", _acl(), _acl(resource_type=4)),
    _create_acls("an operation that the type has not", _acl(resource_type=3, operation=12)),
)

EXCHANGES: Final = (*_LOGINS, *_SCRAM, *_TOKENS, *_FIRST, *_ACLS)

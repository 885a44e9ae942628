"""Where this broker does not answer as the recorded Apache Kafka does, and why.

By section of the recording, and name in it. ``test_recorded_security`` holds each: what is here and does not
differ is an error too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_CREATED_AT_ONCE = "the topic is there when the answer leaves; Kafka creates it afterwards"
_SERVER_ERROR = (
    "Kafka makes UNKNOWN_SERVER_ERROR of an IllegalArgumentException; the request is what is wrong"
)
_NO_ANSWER = (
    "Kafka 4.4.0 fails on it and answers nothing; each resource is INVALID_REQUEST, as it means to say"
)
_USELESS = "no client could log in with such a credential"
_TWO_MECHANISMS = "a request may change both mechanisms of a user, as with ZooKeeper; one of them is wrong"
_BY_PAGE = "denied topics stand among the others, in the order of the names, and on one page only"
_STATE_TOPIC = "a share coordinator is found there only when a group has made its topic"
SOMETIMES = frozenset({_STATE_TOPIC})
"""It depends on whether an earlier request has had its effect by then."""

DIFFERENCES: Final[Mapping[str, Mapping[str, str]]] = {
    "authorization": {
        "METADATA-CREATE-TOPIC-topics[].error_code": _CREATED_AT_ONCE,
        **{
            f"{api}-CLUSTER_ACTION-CLUSTER-results[].partitions[].error_code": _STATE_TOPIC
            for api in (
                "INITIALIZE_SHARE_GROUP_STATE",
                "READ_SHARE_GROUP_STATE",
                "WRITE_SHARE_GROUP_STATE",
                "DELETE_SHARE_GROUP_STATE",
                "READ_SHARE_GROUP_STATE_SUMMARY",
            )
        },
    },
    "before the handshake": {},
    "after the handshake": {},
    "between brokers": {
        "CONTROLLED_SHUTDOWN-CLUSTER_ACTION-CLUSTER-error_code": (
            "of a broker that is not there; Kafka says so up to version 1, and then fails to find its epoch"
        ),
    },
    "exchanges": {
        **{
            f"ACLs: of {what}": _SERVER_ERROR
            for what in ("a matching pattern", "any operation", "any pattern", "any permission", "any type")
        },
        "ACLs: with a slash": "it would be two nodes of the store",
        "API versions of another broker before the login": "Kafka looks only after it, and gets a password",
        "SCRAM: a salted password that is too short": _USELESS,
        "SCRAM: no salt": _USELESS,
        "SCRAM: one good and one bad of a user": _TWO_MECHANISMS,
        "an unknown SCRAM user": "it gets a salt as others do, and fails at the end: who exists is not told",
        "configs: a broker twice, admin": _NO_ANSWER,
        "configs: a broker twice, user-0": _NO_ANSWER,
        "configs: a topic twice, admin": _NO_ANSWER,
        "configs: a topic twice, user-0": _NO_ANSWER,
        "configs: a logger, user-0": "the right comes before the API that cannot do it",
        "configs: a topic without a name, admin": "it is the name that is wrong",
        "tokens of an admin": "only users can own a token, because only a user logs in with one",
        "topics by page, user-0": _BY_PAGE,
        "topics by page, who may describe orders, 1 partitions": _BY_PAGE,
        "topics by page, who may describe orders, 10 partitions": _BY_PAGE,
        "topics to create, user-0": "__cluster_metadata is a topic as any other that one may not create",
    },
}

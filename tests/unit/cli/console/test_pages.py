"""Who may ask the console for what, and what a question may say."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.cli.console.exchange import Query, Refusal, Shared, SharedByQuery, in_order, refusal_response
from minikafka.cli.console.groups import parse_target
from minikafka.cli.console.messages import format_positions, parse_positions
from minikafka.cli.console.pages import check_change, permissions_of
from minikafka.cli.console.why import arguments_of
from minikafka.cli.groups import Target
from minikafka.config.loader import load, parse_setting
from minikafka.errors import ConfigError, ErrorCode, KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.security.jaas import PLAIN_LOGIN_MODULE
from minikafka.server.http.server import HttpRequest
from minikafka.types import TopicPartition

SAME_SITE = {
    "host": "broker:9404",
    "content-type": "application/json; charset=utf-8",
    "origin": "http://broker:9404",
    "sec-fetch-site": "same-origin",
}
TOOL = {"host": "broker:9404", "content-type": "application/json"}


def request(headers: dict[str, str], *, is_authenticated: bool = True) -> HttpRequest:
    return HttpRequest("POST", "/api/group/reset", {}, headers, is_authenticated=is_authenticated, body=b"{}")


@pytest.mark.parametrize("headers", [SAME_SITE, TOOL, {**SAME_SITE, "origin": "https://BROKER:9404"}])
def test_our_own_page_and_tools_may_change_things(headers: dict[str, str]) -> None:
    check_change(request(headers), True)


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ({**SAME_SITE, "origin": "http://elsewhere:9404"}, "elsewhere"),
        ({**SAME_SITE, "origin": "http://broker:9405"}, "9405"),
        ({**SAME_SITE, "origin": "http://broker"}, "not this page"),
        ({**SAME_SITE, "origin": "null"}, "null"),
        ({**SAME_SITE, "origin": "http://user@broker:9404"}, "user"),
        ({**SAME_SITE, "origin": "http://[broker:9404"}, "not this page"),
        ({**SAME_SITE, "origin": ""}, "not this page"),
        ({**SAME_SITE, "host": ""}, "not this page"),
        ({**SAME_SITE, "sec-fetch-site": "cross-site"}, "cross-site"),
        ({**SAME_SITE, "sec-fetch-site": "same-site"}, "same-site"),
        ({**SAME_SITE, "sec-fetch-site": "none"}, "none"),
        ({**SAME_SITE, "content-type": "text/plain"}, "application/json"),
        ({**SAME_SITE, "content-type": "application/x-www-form-urlencoded"}, "application/json"),
        ({"host": "broker:9404"}, "application/json"),
    ],
)
def test_what_another_site_has_a_browser_send_is_refused(headers: dict[str, str], why: str) -> None:
    with pytest.raises(Refusal, match=why) as refused:
        check_change(request(headers), True)
    assert refused.value.status == 403


def test_without_credentials_or_http_admin_nothing_is_changed() -> None:
    with pytest.raises(Refusal, match="authenticated"):
        check_change(request(SAME_SITE, is_authenticated=False), True)
    with pytest.raises(Refusal, match=r"http\.admin is not true"):
        check_change(request(SAME_SITE), "http.admin is not true")


def permissions(*settings: str) -> tuple[bool, bool, bool]:
    """Messages, changes, access."""
    config = load(path=None, environment={}, settings=[parse_setting(each) for each in settings]).config
    found = permissions_of(config)
    return found.messages is True, found.change is True, found.access is True


USERS = "http.basic.auth.users=ops:secret"
SASL = "listeners=SASL_PLAINTEXT://localhost:9092"
SASL_IN = "security.inter.broker.protocol=SASL_PLAINTEXT"
JAAS = (
    f"listener.name.sasl_plaintext.plain.sasl.jaas.config={PLAIN_LOGIN_MODULE} "
    'required username="a" password="b";'
)
SECURED = (SASL, SASL_IN, "sasl.enabled.mechanisms=PLAIN", "sasl.mechanism.inter.broker.protocol=PLAIN", JAAS)
AUTHORIZER = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        ((), True),
        (("http.messages=false",), False),
        (("http.messages=true",), True),
        (("http.host=0.0.0.0",), False),
        (("http.host=0.0.0.0", USERS), True),
        (("http.host=0.0.0.0", "http.messages=true"), True),
        (SECURED, False),
        ((*SECURED, USERS), False),
        ((*SECURED, "http.messages=true"), True),
        ((AUTHORIZER,), False),
    ],
)
def test_messages_are_shown_where_clients_could_read_them_or_when_it_is_said(
    settings: tuple[str, ...], shown: bool
) -> None:
    assert permissions(*settings)[0] is shown


def test_changes_are_off_and_want_somebody_who_can_authenticate() -> None:
    assert permissions()[1] is False
    assert permissions("http.admin=true", USERS)[1] is True
    with pytest.raises(ConfigError, match="readers of the HTTP port do not authenticate"):
        permissions("http.admin=true")


def test_acls_are_for_all_only_where_nobody_is_kept_out() -> None:
    assert permissions()[2] is True
    assert permissions(*SECURED, "http.messages=true")[2] is False


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8081",
        "file:///etc/passwd",
        "http://",
        "http://u:p@host",
        "ftp://host",
        "http://[x",
        "http://h:0",
    ],
)
def test_a_registry_is_a_url_of_http(url: str) -> None:
    with pytest.raises(ConfigError, match=r"http\.registry\.url"):
        permissions(f"http.registry.url={url}")


def test_who_asks_the_registry_has_a_password_which_is_not_told() -> None:
    with pytest.raises(ConfigError, match=r"\[hidden\]") as refused:
        permissions("http.registry.basic.auth.user.info=onlyaname")
    assert "onlyaname" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("earliest", Target("earliest")),
        ("latest", Target("latest")),
        ("offset:7", Target("offset", 7)),
        ("time:1700000000000", Target("time", 1_700_000_000_000)),
        ("by:+5", Target("shift", 5)),
        ("by:-5", Target("shift", -5)),
    ],
)
def test_where_offsets_are_to_go(text: str, target: Target) -> None:
    assert parse_target(text) == target


@pytest.mark.parametrize(
    "text", ["", "newest", "earliest:1", "offset:", "offset:-1", "by:x", "time:" + "9" * 30]
)
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(Refusal) as refused:
        parse_target(text)
    assert refused.value.status == 400


def test_positions_come_back_as_they_were_and_only_for_the_same_partitions() -> None:
    assert parse_positions(format_positions({1: 5, 0: 9}), [0, 1]) == {0: 9, 1: 5}
    for text, partitions in (
        ("0:1", [0, 1]),
        ("0:1,1:2", [0]),
        ("", [0]),
        ("0:-2", [0]),
        ("a:b", [0]),
        ("0", [0]),
    ):
        with pytest.raises(Refusal):
            parse_positions(text, partitions)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        (
            {"subject": "partition", "topic": "t", "partition": "1"},
            {"at": TopicPartition("t", 1), "question": None},
        ),
        (
            {"subject": "fetch", "topic": "t", "partition": "0", "offset": "3"},
            {"offset": 3, "read_committed": False},
        ),
        ({"subject": "produce", "topic": "t"}, {"topic": "t", "client_id": None}),
        ({"subject": "produce", "topic": "t", "partition": "2"}, {"topic": TopicPartition("t", 2)}),
        ({"subject": "group", "id": "-g"}, {"group": "-g"}),
        ({"subject": "reassignment"}, {"at": None}),
        ({"subject": "transaction", "id": "tx"}, {"transactional_id": "tx"}),
        ({"subject": "client", "user": "alice"}, {"client_id": None, "user": "alice", "host": None}),
        ({"subject": "broker", "id": "2"}, {"broker": 2}),
    ],
)
def test_a_why_has_the_arguments_of_the_command(query: dict[str, str], found: dict[str, Any]) -> None:
    arguments = vars(arguments_of(Query(query)))
    assert {name: arguments[name] for name in found} == found


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"subject": "life"},
        {"subject": "partition", "topic": "t"},
        {"subject": "partition", "topic": "t", "partition": "0", "question": "why-not"},
        {"subject": "group"},
        {"subject": "broker", "id": "one"},
        {"subject": "group", "id": "g" * 1_001},
        {"subject": "group", "id": "g", "sample_ms": "60000"},
        {"subject": "table", "topic": "t", "format": "delta", "output": "/etc"},
    ],
)
def test_a_why_that_is_no_question_is_a_400(query: dict[str, str]) -> None:
    with pytest.raises(Refusal) as refused:
        arguments_of(Query(query))
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Refusal(409, "no"), 409),
        (KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), 404),
        (KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), 403),
        (KafkaError(ErrorCode.REQUEST_TIMED_OUT), 502),
        (BrokerUnavailable("away"), 502),
    ],
)
def test_each_error_has_its_status(error: Any, status: int) -> None:
    assert refusal_response(error).status == status


async def test_what_many_ask_for_is_loaded_once_and_a_failure_is_not_kept() -> None:
    loads: list[int] = []

    async def load() -> int:
        loads.append(1)
        if len(loads) == 1:
            raise BrokerUnavailable("away")
        return len(loads)

    shared = Shared(load, keep_s=60)
    with pytest.raises(BrokerUnavailable):
        await shared.get()
    assert [await shared.get(), await shared.get()] == [2, 2]
    shared.forget()
    assert await shared.get() == 3


async def test_answers_are_shared_by_those_who_ask_the_same_and_bounded() -> None:
    asked: list[str] = []

    async def answer(query: Query) -> int:
        asked.append(query.text("filter"))
        return len(asked)

    shared = SharedByQuery(answer, names=("filter",), keep_s=60)
    for _ in range(2):
        assert await shared.get(Query({"filter": "a", "noise": str(len(asked))})) == 1
    for number in range(SharedByQuery.QUESTIONS_MAX):
        await shared.get(Query({"filter": str(number)}))
    assert len(shared._shared) == SharedByQuery.QUESTIONS_MAX
    before = len(asked)
    await shared.get(Query({"filter": "a"}))
    assert len(asked) == before + 1


def test_a_list_is_sorted_by_one_of_its_columns() -> None:
    columns = ("name", "bytes")
    assert Query({}).order(columns) is None
    assert Query({"sort": "bytes"}).order(columns) == ("bytes", False)
    assert Query({"sort": "-bytes"}).order(columns) == ("bytes", True)
    for wrong in ("size", "--bytes", "-", "__class__"):
        with pytest.raises(Refusal, match="sort: must be one of bytes, name") as refused:
            Query({"sort": wrong}).order(columns)
        assert refused.value.status == 400


def test_what_is_not_known_is_last_either_way_and_what_is_equal_stays() -> None:
    rows = [("a", None), ("b", 1), ("c", 2), ("d", 1)]

    def number(row: tuple[str, int | None]) -> int | None:
        return row[1]

    assert [name for name, _ in in_order(rows, number, is_descending=False)] == ["b", "d", "c", "a"]
    assert [name for name, _ in in_order(rows, number, is_descending=True)] == ["c", "b", "d", "a"]

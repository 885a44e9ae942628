"""The status page comes as it is in its file, and the browser is told to run nothing else."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from minikafka.server.http import status
from minikafka.server.http.status import Status
from minikafka.testing import Broker
from tests.unit.server.http_client import Answer, ask


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(config={"http.port": 0}) as made:
        yield made


async def get(broker: Broker, path: str, *, method: str = "GET") -> Answer:
    address = broker.server.http_address
    assert address is not None
    return await ask(address, path, method=method)


async def test_the_page_is_whole_in_itself(broker: Broker) -> None:
    answer = await get(broker, "/")
    assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    text = answer.body.decode()
    assert not re.findall(r"https?://|<script |<link (?!rel=\"icon\" href=\"data:,\")|@import", text)


async def test_only_the_pages_own_script_and_style_may_run(broker: Broker) -> None:
    answer = await get(broker, "/")
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    for element, directive in (("script", "script-src"), ("style", "style-src")):
        content = answer.body.decode().split(f"<{element}>")[1].split(f"</{element}>")[0]
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert policy[directive] == f"'sha256-{digest}'"
    assert (policy["default-src"], policy["connect-src"]) == ("'none'", "'self'")
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_the_script_makes_no_markup_out_of_names(broker: Broker) -> None:
    text = (await get(broker, "/")).body.decode()
    assert not re.findall(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|setAttribute", text
    )


def test_each_script_of_the_folder_is_in_the_page() -> None:
    folder = Path(status.__file__).parent / "page"
    assert {path.stem for path in folder.glob("*.js")} == set(status.SCRIPTS)
    assert len(status.SCRIPTS) == len(set(status.SCRIPTS))


async def test_the_json_is_the_document_and_never_kept(broker: Broker) -> None:
    answer = await get(broker, "/status.json?topic=%3Cb%3E")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert msgspec.json.decode(answer.body, type=Status).topic_filter == "<b>"


@pytest.mark.parametrize("path", ["/", "/status.json"])
async def test_it_is_there_to_be_read_only(broker: Broker, path: str) -> None:
    assert (await get(broker, path, method="HEAD")).body == b""
    assert (await get(broker, path, method="POST")).status == 405


async def test_events_and_what_waits_are_json_of_their_own(broker: Broker) -> None:
    answer = await get(broker, "/events.json?kind=started,controller&newest=1")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    (event,) = msgspec.json.decode(answer.body)["events"]
    assert event["text"] == "is the controller of epoch 1", "the newest of both"
    answer = await get(broker, "/purgatory.json?name=Fetch")
    assert [each["name"] for each in msgspec.json.decode(answer.body)["purgatories"]] == ["Fetch"]


@pytest.mark.parametrize("path", ["/events.json?kind=nope", "/purgatory.json?limit=x"])
async def test_a_wrong_query_is_a_bad_request_that_says_why(broker: Broker, path: str) -> None:
    answer = await get(broker, path)
    assert answer.status == 400
    assert b"there are started" in answer.body or b"must be a whole number" in answer.body

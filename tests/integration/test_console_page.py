"""The console's page in a real browser, by what a person does: find, read, follow, ask why, and change."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiokafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from minikafka.cli.reassign import command as reassign
from minikafka.server.http import status
from minikafka.server.http.server import HttpRequest, HttpResponse, HttpServer
from minikafka.server.runtime.event_loop import Supervisor
from tests.integration.conftest import StartBroker, StartCluster
from tests.integration.support import confluent
from tests.integration.support.browser import BrowserPage, open_browser
from tests.integration.support.console import running_console
from tests.integration.support.process import BrokerProcess
from tests.integration.support.records import Record
from tests.support.certificates import CertificateAuthority
from tests.support.ports import free_port

pytestmark = [
    pytest.mark.minikafka_only,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not there"),
]

HOSTILE = '<img src=x onerror="document.title=1">&amp;'
ORDERS = [
    Record(f"customer-{number % 3}".encode(), json.dumps({"order": number, "total": 7.50}).encode())
    for number in range(12)
]
PLACES = ("", "topics", "groups", "reassignments", "access", "events", "purgatory", "why", "broker")


@pytest.fixture
async def browser(tmp_path: Path) -> AsyncIterator[BrowserPage]:
    async with open_browser(tmp_path) as made:
        yield made


class Shop:
    """A broker with a topic of orders and what reads it."""

    def __init__(self, broker: BrokerProcess, http_port: int) -> None:
        self.bootstrap = broker.bootstrap
        self.url = f"http://127.0.0.1:{http_port}/"

    async def write(self, *records: Record) -> None:
        await asyncio.to_thread(confluent.write, self.bootstrap, "orders", records)

    async def commit(self, group_id: str, offset: int) -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap, group_id=group_id, enable_auto_commit=False
        )
        async with consumer:
            at = aiokafka.TopicPartition("orders", 0)
            consumer.assign([at])
            await consumer.commit({at: offset})


async def open_shop(start_broker: StartBroker, **properties: object) -> Shop:
    port = free_port()
    broker = await asyncio.to_thread(start_broker, properties={"http.port": port} | properties)
    await asyncio.to_thread(confluent.make_topic, broker.bootstrap, "orders")
    shop = Shop(broker, port)
    await shop.write(*ORDERS)
    return shop


@pytest.fixture
async def shop(start_broker: StartBroker) -> Shop:
    return await open_shop(start_broker)


async def test_find_a_topic_and_read_what_is_in_it(shop: Shop, browser: BrowserPage) -> None:
    await shop.commit(HOSTILE, 3)
    await browser.open(shop.url)
    await browser.wait_for_row("cluster-brokers", "broker 1 (controller)", "alive")
    assert (await browser.rows("troubled")) == [["none"]]

    await browser.click("#views a", text="Topics")
    row = await browser.wait_for_row("all-topics", "orders")
    assert row[1:6] == ["1", "1", "0", "0", "0"] and row[7] == "12"
    assert re.fullmatch(r"\d+(\.\d)? (B|KiB)", row[6]), "a size as people read it"
    assert not await browser.evaluate("document.getElementById('internal').open"), "folded"
    assert [row[0] for row in await browser.rows("internal-topics")] == ["__consumer_offsets"]
    await browser.enter("#topic-filter", "consumer")
    await browser.wait_for_row("all-topics", "none")
    await browser.enter("#topic-filter", "ord")
    await browser.click("#all-topics a", text="orders")
    #                                          partition, leader, its epoch, replicas, ISR, start, HW, records
    row = await browser.wait_for_row("topic-partitions", "0")
    assert row[:8] == ["0", "broker 1", "0", "1", "1", "0", "12", "12"]

    await browser.click(".tabs a", text="Configurations")
    row = await browser.wait_for_row("topic-configs", "cleanup.policy")
    assert row[1:3] == ["delete", "DEFAULT_CONFIG"]
    await browser.click(".tabs a", text="Groups")
    await browser.wait_for_row("topic-groups", HOSTILE)

    await browser.click(".tabs a", text="Messages")
    row = await browser.wait_for_row("messages", "11", "0")
    assert row[3:5] == ["customer-2", '{"order": 11, "total": 7.5}']
    assert len(await browser.rows("messages")) == 12
    await browser.enter("#key", "customer-1")
    await browser.press("Enter")
    await browser.wait_for_text("4 messages shown", "#messages-said")
    assert [row[0] for row in await browser.rows("messages")] == ["1", "4", "7", "10"]
    assert "key=customer-1" in await browser.evaluate("location.hash"), "what can be sent to a colleague"

    await browser.click("#messages button", text="4")
    await browser.wait_for_text('"order": 4', "#dialog")
    await browser.press("Escape")
    assert await browser.focused() == "BUTTON 4", "back where one was"


async def test_messages_by_offset_header_text_and_time(shop: Shop, browser: BrowserPage) -> None:
    await shop.write(Record(None, HOSTILE.encode(), (("source", b"web"),)), Record(b"\xff\x00", None))
    await browser.open(f"{shop.url}#/topics/orders/messages?from=offset:10")
    rows = await browser.wait(
        "document.getElementById('messages')?.rows.length === 4 && "
        "[...document.getElementById('messages').rows].map((row) => row.innerText)",
        "from offset 10 on",
    )
    assert HOSTILE in rows[2] and "source: web" in rows[2]
    assert await browser.evaluate("document.querySelectorAll('#messages img').length") == 0
    for query, offsets in (
        ("from=earliest&header=source", ["12"]),
        ("from=earliest&header=source%3Dshop", ["none"]),
        ("from=earliest&contains=%22order%22%3A%207%2C", ["7"]),
        ("from=earliest&limit=20&partition=0", [str(each) for each in range(14)]),
        ("from=time:99999999999999", ["none"]),
    ):
        await browser.open(f"{shop.url}#/topics/orders/messages?{query}")
        await browser.wait(
            "[...(document.getElementById('messages')?.rows ?? [])].map((row) => row.cells[0].textContent)"
            f".join() === {json.dumps(','.join(offsets))} && "
            "document.getElementById('messages-said').textContent.includes('shown')",
            f"{offsets} for {query}",
        )


async def test_more_goes_on_where_it_ended(shop: Shop, browser: BrowserPage) -> None:
    await shop.write(*ORDERS, *ORDERS)
    await browser.open(f"{shop.url}#/topics/orders/messages?from=earliest&limit=20")
    await browser.wait_for_text("20 messages shown", "#messages-said")
    await browser.click("#more")
    await browser.wait_for_text("36 messages shown", "#messages-said")
    assert [row[0] for row in await browser.rows("messages")] == [str(each) for each in range(36)]
    assert not await browser.evaluate("document.getElementById('more').checkVisibility()"), "that is the end"


SORTED_BY = (
    "[...document.querySelectorAll('#%s')].flatMap((body) => [...body.parentElement.tHead.rows[0].cells])"
    ".filter((head) => head.ariaSort).map((head) => `${head.textContent} ${head.ariaSort}`).join()"
)


async def wait_for_names(browser: BrowserPage, table: str, *names: str) -> None:
    await browser.wait(
        f"[...(document.getElementById('{table}')?.rows ?? [])].map((row) => row.cells[0].textContent)"
        f".join() === '{','.join(names)}'",
        f"{names} in {table}",
    )


async def test_topics_and_groups_are_sorted_by_mouse_and_keyboard(shop: Shop, browser: BrowserPage) -> None:
    for name, partitions in (("audit", 3), ("bills", 2)):
        await asyncio.to_thread(confluent.make_topic, shop.bootstrap, name, partitions=partitions)
    await asyncio.to_thread(confluent.write, shop.bootstrap, "bills", [Record(None, b"x" * 5000)] * 3)
    await browser.open(f"{shop.url}#/topics")
    await wait_for_names(browser, "all-topics", "audit", "bills", "orders")
    assert await browser.evaluate(SORTED_BY % "all-topics") == ""
    await browser.click("thead button", text="Records")
    await wait_for_names(browser, "all-topics", "orders", "bills", "audit")
    assert await browser.evaluate(SORTED_BY % "all-topics") == "Records descending"
    await browser.click("thead button", text="Size")
    await wait_for_names(browser, "all-topics", "bills", "orders", "audit")

    await browser.press("Tab", shift=True, times=5)  # what was clicked has the focus
    assert await browser.focused() == "BUTTON Partitions"
    await browser.press("Enter")
    await wait_for_names(browser, "all-topics", "audit", "bills", "orders")
    await browser.press("Space")
    await wait_for_names(browser, "all-topics", "orders", "bills", "audit")
    assert await browser.evaluate(SORTED_BY % "all-topics") == "Partitions ascending"
    assert await browser.focused() == "BUTTON Partitions", "where one was"
    assert "sort=partitions" in await browser.evaluate("location.hash"), "what can be sent to a colleague"
    await browser.press("Enter")
    await wait_for_names(browser, "all-topics", "audit", "bills", "orders")
    assert await browser.evaluate(SORTED_BY % "all-topics") == ""

    for group, offset in (("packing", 2), ("billing", 9), ("audit", 5)):
        await shop.commit(group, offset)
    await browser.open(f"{shop.url}#/groups?sort=lag")
    await wait_for_names(browser, "all-groups", "billing", "audit", "packing")
    assert await browser.evaluate(SORTED_BY % "all-groups") == "Lag ascending"
    await browser.click("thead button", text="Group")
    await wait_for_names(browser, "all-groups", "audit", "billing", "packing")


async def test_partitions_are_sorted_by_what_they_are_and_not_how_they_are_written(
    shop: Shop, browser: BrowserPage
) -> None:
    await asyncio.to_thread(confluent.make_topic, shop.bootstrap, "bills", partitions=12)
    for partition, size in ((3, 900), (10, 90_000), (2, 2_000)):
        await asyncio.to_thread(
            confluent.write, shop.bootstrap, "bills", [Record(None, b"x" * size)], partition=partition
        )
    await browser.open(f"{shop.url}#/topics/bills")
    await browser.wait_for_row("topic-partitions", "11")
    await browser.click("thead button", text="Size")
    await browser.wait(
        "[...document.getElementById('topic-partitions').rows].map((row) => row.cells[0].textContent)"
        ".join().startsWith('10,2,3,')",
        "90 KB before 2 KB before 900 bytes",
    )
    await browser.click("thead button", text="Partition")
    assert [row[0] for row in await browser.rows("topic-partitions")][:3] == ["11", "10", "9"]
    await browser.evaluate("look()")
    assert [row[0] for row in await browser.rows("topic-partitions")][:3] == ["11", "10", "9"], "stays so"


async def test_the_rate_at_which_a_topic_is_written(shop: Shop, browser: BrowserPage) -> None:
    await browser.open(f"{shop.url}#/topics?sort=-records_per_s")
    row = await browser.wait_for_row("all-topics", "orders")
    assert row[8] == "", "the first look"
    await shop.write(*ORDERS)
    await browser.wait(
        "/^[0-9.]+.s$/.test(document.getElementById('all-topics').rows[0].cells[8].textContent)", "a rate"
    )


async def test_what_is_shown_can_be_downloaded(shop: Shop, browser: BrowserPage, tmp_path: Path) -> None:
    await shop.write(
        Record(None, b'{"id": 12345678901234567890}', ((HOSTILE, b"web"), ("none", None))),
        Record(b"\xff\x00", None),
        Record("ключ".encode(), b"y" * 100_000),
    )
    await browser.send("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    await browser.open(f"{shop.url}#/topics/orders/messages?from=offset:11")
    await browser.wait_for_text("4 messages shown", "#messages-said")
    await browser.click("#download")
    await browser.wait_for_text("4 messages saved as orders.jsonl. Of 1 only", "#messages-said")
    saved = tmp_path / "orders.jsonl"
    async with asyncio.timeout(30):
        while not saved.exists():  # noqa: ASYNC110 - the browser makes it when it is whole
            await asyncio.sleep(0.05)
    told = [json.loads(line) for line in saved.read_text().splitlines()]
    assert [each["offset"] for each in told] == [11, 12, 13, 14]
    assert told[0].items() >= {"topic": "orders", "partition": 0, "key": "customer-2"}.items()
    assert told[0]["timestamp_type"] == "CREATE_TIME" and told[0]["timestamp_ms"] > 1_500_000_000_000
    assert told[1]["value"] == '{"id": 12345678901234567890}', "no number is rounded"
    assert (told[1]["key"], told[1]["value_format"]) == (None, "json")
    assert told[1]["headers"] == [[HOSTILE, "web"], ["none", None]]
    assert (told[2]["key"], told[2]["key_format"], told[2]["value"]) == ("ff00", "hex", None)
    assert (told[3]["key"], len(told[3]["value"])) == ("ключ", 32 * 1024)
    assert [each["is_cut"] for each in told] == [False, False, False, True]


async def test_follow_what_is_produced_and_pause(shop: Shop, browser: BrowserPage) -> None:
    await browser.open(f"{shop.url}#/topics/orders/messages")
    await browser.wait_for_row("messages", "11")
    await browser.click("#tail")
    await browser.wait_for_text("Live.", "#messages-said")
    assert await browser.rows("messages") == [["none"]], "only what comes from now on"
    await shop.write(Record(b"new", b"first"))
    await browser.wait_for_row("messages", "12", "0")
    await shop.write(Record(b"new", b"second"))
    await browser.wait_for_row("messages", "13", "0")
    assert [row[0] for row in await browser.rows("messages")] == ["13", "12"], "the newest first"

    await browser.click("#tail")
    await browser.wait_for_text("Paused.", "#messages-said")
    await shop.write(Record(b"new", b"third"))
    assert [row[0] for row in await browser.rows("messages")] == ["13", "12"]
    await browser.click("#tail")
    await browser.wait_for_row("messages", "14", "0")
    assert [row[0] for row in await browser.rows("messages")] == ["14", "13", "12"], "nothing is missed"


async def test_a_groups_lag_over_time_and_why(shop: Shop, browser: BrowserPage) -> None:
    await shop.commit("packing", 2)
    await browser.open(shop.url)
    await browser.click("#views a", text="Groups")
    row = await browser.wait_for_row("all-groups", "packing")
    assert (row[3], row[5], row[6]) == ("Empty", "0", "10")
    await browser.click("#all-groups a", text="packing")
    row = await browser.wait_for_row("group-offsets", "orders", "0")
    assert row[2:6] == ["2", "0", "12", "10"]
    await shop.write(*ORDERS)
    await browser.wait_for_text("now 22", "#lag-says")
    assert await browser.evaluate("document.querySelector('.chart polyline').points.length") > 1
    await browser.click("#group-why")
    sentence = await browser.wait("document.getElementById('why-sentence')?.textContent")
    assert "packing" in sentence
    await browser.wait_for_text("docs/", "#dialog")


async def test_offsets_are_reset_only_after_one_has_seen_what_changes(
    start_broker: StartBroker, browser: BrowserPage
) -> None:
    shop = await open_shop(
        start_broker, **{"http.admin": "true", "http.bearer.token": "s3cret-token-of-ours"}
    )
    await shop.commit("packing", 2)
    await browser.send("Network.enable")
    headers = {"Authorization": "Bearer s3cret-token-of-ours"}
    await browser.send("Network.setExtraHTTPHeaders", headers=headers)
    await browser.open(f"{shop.url}#/groups/packing")
    await browser.choose("#reset-to", "offset")
    await browser.enter("#reset-number", "5")
    await browser.click("#reset-try")
    await browser.wait_for_text("Nothing has been changed yet", "#reset-said")
    assert (await browser.rows("reset-changes"))[0][:4] == ["orders", "0", "2", "5"]
    assert (await browser.wait_for_row("group-offsets", "orders"))[2] == "2"

    await browser.choose("#reset-to", "earliest")
    assert not await browser.evaluate("document.getElementById('reset-do').checkVisibility()"), "not seen yet"
    await browser.click("#reset-try")
    await browser.wait_for_text("Nothing has been changed yet", "#reset-said")
    await browser.click("#reset-do")
    await browser.wait_for_text("1 offset reset", "#reset-said")
    await browser.wait(
        "document.getElementById('group-offsets').rows[0].cells[2].textContent === '0'", "the offset is reset"
    )


async def test_who_may_not_change_is_told_why(shop: Shop, browser: BrowserPage) -> None:
    await shop.commit("packing", 2)
    await browser.open(f"{shop.url}#/groups/packing")
    await browser.wait_for_text("http.admin is not true", "#reset-refused")
    assert not await browser.evaluate("document.getElementById('reset-try').checkVisibility()")


async def test_who_may_not_read_messages_is_told_why(start_broker: StartBroker, browser: BrowserPage) -> None:
    shop = await open_shop(start_broker, **{"http.messages": "false"})
    await browser.open(f"{shop.url}#/topics/orders/messages")
    await browser.wait_for_text("http.messages is false", "#messages-refused")
    assert not await browser.evaluate("document.getElementById('read').checkVisibility()")


async def test_with_the_keyboard_alone(shop: Shop, browser: BrowserPage) -> None:
    await browser.open(shop.url)
    await browser.wait_for_row("cluster-brokers", "broker 1 (controller)")
    await browser.press("Tab")
    assert await browser.focused() == "skip"
    await browser.press("Enter")
    assert await browser.focused() == "main"
    await browser.press("Tab", shift=True, times=8)
    assert await browser.focused() == "A Topics"
    await browser.press("Enter")
    await browser.wait_for_row("all-topics", "orders")
    assert await browser.focused() == "view-title", "a reader of the screen hears where he is"
    await browser.press("/")
    assert await browser.focused() == "topic-filter"
    await browser.type("ord")
    await browser.wait("location.hash.includes('filter=ord')")
    await browser.press("Tab", times=2)  # over the table, which scrolls, to what it can be sorted by
    assert await browser.focused() == "BUTTON Topic"
    await browser.press("Tab", times=9)
    assert await browser.focused() == "A orders"
    await browser.press("Tab")
    assert await browser.focused() == "BUTTON why?"
    await browser.press("Enter")
    await browser.wait("document.getElementById('why-sentence')?.textContent", "the answer")
    assert await browser.focused() == "dialog-title"
    await browser.press("Escape")
    assert await browser.focused() == "BUTTON why?"
    nameless = await browser.evaluate(
        "[...document.querySelectorAll('input, select')]"
        ".filter((each) => !each.labels.length).map((each) => each.id)"
    )
    assert nameless == []


async def test_500_pixels_wide_and_in_the_dark(shop: Shop, browser: BrowserPage) -> None:
    await shop.commit("packing", 2)
    await browser.resize(500)
    await browser.prefer("dark")
    places = [*PLACES, "topics/orders", "topics/orders/messages", "topics/orders/configs", "groups/packing"]
    for place in places:
        await browser.open(f"{shop.url}#/{place}")
        await browser.wait(
            f"typeof here === 'object' && here?.place.hash === '#/{place}' &&"
            " document.getElementById('main').ariaBusy === 'false'"
        )
        widths = await browser.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert widths[0] <= widths[1] == 500, f"{place or 'cluster'} is {widths[0]} pixels wide"
        assert await browser.evaluate("document.getElementById('trouble').textContent") == "", place
    back, text = await browser.evaluate(
        "['backgroundColor', 'color'].map((each) => getComputedStyle(document.body)[each])"
    )
    assert brightness(back) < 60 < 180 < brightness(text)
    await browser.prefer("light")
    back, text = await browser.evaluate(
        "['backgroundColor', 'color'].map((each) => getComputedStyle(document.body)[each])"
    )
    assert brightness(back) > 180 > 60 > brightness(text)


def brightness(color: str) -> float:
    return sum(map(int, re.findall(r"\d+", color)[:3])) / 3


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
async def test_the_whole_cluster_from_any_broker(start_cluster: StartCluster, browser: BrowserPage) -> None:
    ports = {node_id: free_port() for node_id in (1, 2, 3)}
    own = {node_id: {"http.port": port} for node_id, port in ports.items()}
    cluster = await asyncio.to_thread(start_cluster, own_properties=own)
    await asyncio.to_thread(confluent.make_topic, cluster.bootstrap, "orders", partitions=3, replicas=3)
    await browser.open(f"http://127.0.0.1:{ports[2]}/")
    for node_id in ports:
        await browser.wait(
            f"[...(document.getElementById('cluster-brokers')?.rows ?? [])].some((row) =>"
            f" row.cells[0].textContent.startsWith('broker {node_id}') && row.cells[11].textContent)",
            f"broker {node_id} and its connections",
        )
    await asyncio.to_thread(confluent.write, cluster.bootstrap, "orders", [Record(None, b"x" * 100_000)] * 20)
    await browser.wait(
        "[...document.getElementById('cluster-brokers').rows]"
        ".some((row) => /[KM]iB.s/.test(row.cells[5].textContent))",
        "a rate of bytes in",
    )
    assert await browser.evaluate("document.querySelectorAll('#cluster-summary polyline').length") == 3

    victim = next(each for each in cluster.brokers.values() if each is not cluster.brokers[2])
    await asyncio.to_thread(victim.kill)
    await browser.wait_for_text("2 of 3", "#cluster-summary")
    row = await browser.wait(
        "[...document.getElementById('troubled').rows]"
        ".map((row) => [...row.cells].map((cell) => cell.textContent))"
        ".find((row) => row[0] === 'orders' && row[3] === '3')",
        "all partitions lack a replica",
    )
    assert row[1] == "3"
    await browser.open(f"http://127.0.0.1:{ports[2]}/#/topics/orders")
    await browser.click("#topic-partitions button", text="why?")
    await browser.wait_for_text("orders-0", "#dialog")
    await browser.wait("document.getElementById('why-sentence')?.textContent", "the answer")
    await browser.click("#dialog button", text="a produce to orders-0")
    await browser.wait_for_text("a produce to orders-0", "#dialog-title")
    await browser.press("Escape")
    await browser.open(f"http://127.0.0.1:{ports[2]}/#/events")
    await browser.wait_for_text("election", ".timeline")


async def test_beside_a_cluster_with_tls_and_a_login(shop: Shop, tmp_path: Path) -> None:
    authority = CertificateAuthority()
    authority.issue("console", hosts=("127.0.0.1",)).write_pem(tmp_path / "console.pem")
    tls, users = tmp_path / "tls.properties", tmp_path / "users"
    tls.write_text(f"ssl.keystore.type=PEM\nssl.keystore.location={tmp_path / 'console.pem'}\n")
    users.write_text("ops:s3cret\n")
    arguments = ("--http-tls", str(tls), "--users", str(users))
    with running_console(shop.bootstrap, *arguments) as address:
        async with open_browser(tmp_path, arguments=("--ignore-certificate-errors",)) as browser:
            await browser.open(address.replace("https://", "https://ops:s3cret@"))
            await browser.wait_for_row("cluster-brokers", "broker 1 (controller)", "alive")
            await browser.click("#views a", text="Topics")
            await browser.click("#all-topics a", text="orders")
            await browser.click(".tabs a", text="Messages")
            await browser.wait_for_row("messages", "11")
            status = "fetch('/api/topics', {credentials: 'omit'}).then((answer) => answer.status)"
            assert await browser.evaluate(status) == 401, "without a login"


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
async def test_a_throttled_reassignment_is_seen_to_go_on_until_it_is_done(
    start_cluster: StartCluster, browser: BrowserPage, tmp_path: Path
) -> None:
    ports = {node_id: free_port() for node_id in (1, 2, 3)}
    own = {node_id: {"http.port": port} for node_id, port in ports.items()}
    cluster = await asyncio.to_thread(start_cluster, own_properties=own)
    bootstrap = cluster.bootstrap
    await asyncio.to_thread(confluent.make_topic, bootstrap, "moved", replicas=2)
    records = [Record(None, os.urandom(50_000)) for _ in range(80)]
    await asyncio.to_thread(confluent.write, bootstrap, "moved", records)
    await browser.open(f"http://127.0.0.1:{ports[1]}/#/topics/moved")
    kept, gone = (await browser.wait_for_row("topic-partitions", "0"))[3].split(", ")
    (coming,) = {"1", "2", "3"} - {kept, gone}
    replicas = [int(kept), int(coming)]
    plan = {"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": replicas}]}
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan))
    arguments = ["execute", "--reassignment-json-file", str(path), "-b", bootstrap, "--no-wait"]
    assert await asyncio.to_thread(reassign.main, [*arguments, "--throttle", "250000"]) == 0

    await browser.click("#views a", text="Reassignments")
    row = await browser.wait_for_row("reassignments", "moved", "0")
    assert (row[3], row[4]) == (coming, gone)
    done = "document.querySelector('#reassignments progress')?.value"
    first = await browser.wait(f"{done} > 0 && {done} < 1 && {done}", "a part of it is done")
    await browser.wait(f"{done} > {first} && {done} < 1", "more of it is done")
    rate_and_left = await browser.wait(
        "((cells) => cells[8] && cells[7].textContent.endsWith('/s') && cells[8].textContent !== 'not known'"
        " && [cells[7].textContent, cells[8].textContent])"
        "(document.getElementById('reassignments').rows[0].cells)",
        "a rate, and when it will be done",
    )
    assert re.fullmatch(r"[0-9.]+ [KM]iB/s", rate_and_left[0]) and re.search(r"\d m?s", rate_and_left[1])
    faster = [*arguments, "--additional", "--throttle", "50000000"]  # it would take 16 s
    assert await asyncio.to_thread(reassign.main, faster) == 0
    await browser.wait_for_row("reassignments", "none")
    await browser.open(f"http://127.0.0.1:{ports[1]}/#/topics/moved")
    await browser.wait(
        "document.getElementById('topic-partitions')?.rows[0]?.cells[4].textContent"
        f".split(', ').sort().join() === '{','.join(sorted((kept, coming)))}'",
        "the new replicas are in sync",
    )


CLUSTER: dict[str, Any] = {
    "at_ms": 1_800_000_000_000,
    "cluster_id": "canned",
    "controller_id": 1,
    "software": None,
    "asked_of": None,
    "brokers": [],
    "topics": 0,
    "partitions": 0,
    "offline_partitions": 0,
    "under_replicated_partitions": 0,
    "under_min_isr_partitions": 0,
    "preferred_leader_partitions": 0,
    "can": {"messages": True, "change": True, "registry": True},
}
MOVE = {
    "topic": "orders",
    "partition": 0,
    "replicas": [1, 2, 3],
    "adding": [3],
    "removing": [1],
    "bytes_left": 300 * 2**20,
    "bytes_total": 2**30,
    "bytes_per_s": 2**20,
    "seconds_left": 300,
}


@pytest.fixture
async def canned() -> AsyncIterator[Canned]:
    supervisor = Supervisor()
    made = Canned(HttpServer(supervisor=supervisor))
    await made.server.start("127.0.0.1", 0)
    yield made
    await made.server.close()
    await supervisor.stop()


class Canned:
    """The page, and answers of no cluster: for what takes long to come about in a real one."""

    def __init__(self, server: HttpServer) -> None:
        self.server = server
        self.answers: dict[str, Any] = {"cluster": CLUSTER}
        self.changes: list[tuple[str, Any]] = []
        server.add("/", self._page)
        server.add_below("/api/", self._api, close=self._close)

    @property
    def url(self) -> str:
        assert self.server.address is not None
        return f"http://127.0.0.1:{self.server.address[1]}/"

    async def _page(self, request: HttpRequest) -> HttpResponse:
        return status.page()

    async def _close(self) -> None:
        pass

    async def _api(self, request: HttpRequest) -> HttpResponse:
        name = request.path.removeprefix("/api/")
        if request.method == "POST":
            self.changes.append((name, json.loads(request.body or b"")))
        if name not in self.answers:
            return HttpResponse.text(f"{name} is not to be had", status=502)
        return HttpResponse(json.dumps(self.answers[name]).encode(), content_type="application/json")


async def test_a_reassignment_with_its_progress_is_cancelled_after_a_question(
    canned: Canned, browser: BrowserPage
) -> None:
    canned.answers["reassignments"] = {"reassignments": [MOVE, MOVE | {"partition": 1, "bytes_left": None}]}
    await browser.open(f"{canned.url}#/reassignments")
    row = await browser.wait_for_row("reassignments", "orders", "0")
    assert row[2:9] == ["1, 2, 3", "3", "1", " 70 %", "300 MiB", "1.0 MiB/s", "5 min"]
    assert (await browser.wait_for_row("reassignments", "orders", "1"))[5] == "not known"
    assert await browser.evaluate("document.title") == "Reassignments · Kafka"
    offered = await browser.evaluate(
        "[...document.querySelectorAll('#views a')].map((each) => each.textContent)"
    )
    assert offered == ["Cluster", "Topics", "Groups", "Reassignments", "Access", "Why?"], (
        "no minikafka is there"
    )

    await browser.click("#reassignments button", text="cancel…")
    await browser.click("#dialog button", text="Close")
    assert canned.changes == []
    await browser.click("#reassignments button", text="cancel…")
    await browser.click("#dialog button", text="Cancel the reassignment")
    await browser.wait_for_text("is not to be had", "#dialog")  # what the server says, where one looks
    canned.answers["reassignments/cancel"] = {}
    canned.answers["reassignments"] = {"reassignments": []}
    await browser.click("#dialog button", text="Cancel the reassignment")
    await browser.wait_for_row("reassignments", "none")
    assert canned.changes == [("reassignments/cancel", {"topic": "orders", "partition": 0})] * 2


async def test_what_cannot_be_asked_is_said_and_what_was_known_stays(
    canned: Canned, browser: BrowserPage
) -> None:
    canned.answers["access"] = {
        "acls": None,
        "acls_left_out": 0,
        "why_no_acls": "there is no authorizer",
        "users": [{"name": HOSTILE, "mechanisms": ["SCRAM-SHA-256"]}],
        "why_no_users": None,
        "quotas": [{"entity": "client-id x", "quota": "producer_byte_rate", "value": 2**20}],
        "quotas_left_out": 3,
    }
    await browser.open(f"{canned.url}#/access")
    await browser.wait_for_text("There is no authorizer.", "#acls-note")
    assert await browser.rows("acls") == [["not known"]]
    assert (await browser.rows("users"))[0][:2] == [HOSTILE, "SCRAM-SHA-256"]
    assert await browser.rows("quotas") == [["client-id x", "producer_byte_rate", "1.0 MiB/s"]]
    await browser.wait_for_text("And 3 more", "#quotas-note")
    del canned.answers["access"]
    await browser.evaluate("look()")
    await browser.wait_for_text("access is not to be had", "#trouble")
    assert await browser.evaluate("document.body.className") == "stale"
    assert (await browser.rows("users"))[0][0] == HOSTILE


async def test_what_waits_and_what_happened(shop: Shop, browser: BrowserPage) -> None:
    consumer = AIOKafkaConsumer("orders", bootstrap_servers=shop.bootstrap, fetch_max_wait_ms=30_000)
    async with consumer:
        await consumer.seek_to_end()
        reading = asyncio.create_task(consumer.getmany(timeout_ms=60_000))
        await browser.open(f"{shop.url}#/purgatory")
        row = await browser.wait_for_row("broker-waiting", "Fetch")
        assert "orders-0" in row[1]
        assert sum(int(cell) for each in await browser.rows("broker-wheel") for cell in each[1:] if cell) > 0
        reading.cancel()
    await browser.open(f"{shop.url}#/events")
    await browser.wait(
        "[...(document.getElementById('all-events')?.rows ?? [])].some((row) =>"
        " row.cells[2].textContent === 'election' && row.cells[3].textContent === 'orders-0')"
    )
    await browser.choose("#event-kind", "started")
    await browser.wait("[...document.getElementById('all-events').rows].length === 1")


async def test_why_of_what_no_table_has_a_row_for(shop: Shop, browser: BrowserPage) -> None:
    await browser.open(f"{shop.url}#/why")
    await browser.choose("#why-subject", "client")
    await browser.enter("#why-client_id", "till-7")
    await browser.press("Enter")
    await browser.wait_for_text("Why? client: till-7", "#dialog-title")
    await browser.wait("document.getElementById('why-sentence')?.textContent", "the answer")
    await browser.press("Escape")
    await browser.choose("#why-subject", "fetch")
    await browser.enter("#why-topic", "orders")
    await browser.enter("#why-partition", "0")
    await browser.click("form button", text="Ask why")
    await browser.wait_for_text("orders-0", "#why-sentence")
    await browser.open(f"{shop.url}#/topics/orders")
    await browser.click("#topic-partitions button", text="why?")
    await browser.click("#dialog button", text="orders-0 that grows")
    await browser.wait_for_text("Why? orders-0 that grows", "#dialog-title")
    await browser.wait("document.getElementById('why-sentence')?.textContent", "the answer")


async def test_each_subject_is_asked_about_by_its_form(shop: Shop, browser: BrowserPage) -> None:
    await shop.commit("billing", 5)
    producer = AIOKafkaProducer(bootstrap_servers=shop.bootstrap, transactional_id="payments")
    async with producer:
        await producer.begin_transaction()
        await producer.send_and_wait("orders", b"open", partition=0)
        await browser.open(f"{shop.url}#/why")
        for subject, fields, sentence in (
            ("transaction", {"transactional_id": "payments"}, "The transaction of payments is open for"),
            ("partition", {"topic": "orders", "partition": "0"}, "orders-0 is well: led by its preferred"),
            ("produce", {"topic": "orders"}, "Nothing keeps a produce to orders from its answer"),
            ("group", {"group": "billing"}, "billing"),
            ("topic", {"topic": "sold"}, "There is no topic sold"),
            ("reassignment", {}, "Nothing is being reassigned"),
            ("broker", {"broker": "77"}, "Broker 77 is not in the cluster"),
        ):
            await browser.choose("#why-subject", subject)
            for name, value in fields.items():
                await browser.enter(f"#why-{name}", value)
            await browser.click("form button", text="Ask why")
            await browser.wait_for_text(sentence, "#why-sentence")
            await browser.press("Escape")
        await browser.choose("#why-subject", "fetch")
        await browser.enter("#why-topic", "orders")
        await browser.enter("#why-partition", "0")
        await browser.click("#why-read-committed")
        await browser.click("form button", text="Ask why")
        await browser.wait_for_text("the transaction of payments", "#why-sentence")
        await producer.abort_transaction()


async def test_an_address_that_names_nothing(shop: Shop, browser: BrowserPage) -> None:
    await browser.open(f"{shop.url}#/topics/{quote('no such topic', safe='')}")
    await browser.wait_for_text("no such topic", "#trouble")
    await browser.open(f"{shop.url}#/nowhere/%E0%A4%A")
    await browser.wait_for_row("cluster-brokers", "broker 1 (controller)")


async def test_numbers_are_shown_as_people_read_them(shop: Shop, browser: BrowserPage) -> None:
    await browser.open(shop.url)
    await browser.wait_for_row("cluster-brokers", "broker 1 (controller)")
    shown = "[bytes(0), bytes(999), bytes(1536), bytes(5e9), bytes(null)]"
    assert await browser.evaluate(shown) == ["0 B", "999 B", "1.5 KiB", "4.7 GiB", "not known"]
    shown = (
        "[duration(3), duration(60000), duration(93784000), duration(86400000 * 2 + 5000), duration(null)]"
    )
    assert await browser.evaluate(shown) == ["3 ms", "1 min", "1 d 2 h", "2 d", "not known"]
    text = base64.b64encode(b'{"a":[1, 2.0,{}],"id":12345678901234567890,"s":"x, {y"}').decode()
    laid_out = await browser.evaluate(f"indented({{ text: atob('{text}'), is_cut: false }})")
    assert laid_out.splitlines() == [
        "{",
        '  "a": [',
        "    1,",
        "    2.0,",
        "    {}",
        "  ],",
        '  "id": 12345678901234567890,',
        '  "s": "x, {y"',
        "}",
    ], "numbers as they are written"

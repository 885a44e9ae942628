"""The pictures of the console in ``docs/assets``.

``.venv-dev/bin/python -m tests.integration.support.screenshots`` makes them again: three brokers with orders,
a group that lags, and one broker that dies; then what a reader would look at.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path

import aiokafka
from aiokafka import AIOKafkaConsumer

from tests.integration.support import confluent
from tests.integration.support.browser import BrowserPage, open_browser
from tests.integration.support.cluster import ProcessCluster, SqliteEngine
from tests.integration.support.records import Record
from tests.support.ports import free_port

ASSETS = Path(__file__).parents[3] / "docs" / "assets"
PICTURE_BYTES_MAX = 150 * 1024
WIDTH, HEIGHT = 1100, 720
SECONDS_OF_RATES = 24


def order(number: int) -> Record:
    value = {"order": number, "customer": f"customer-{number % 7}", "items": number % 5 + 1}
    return Record(f"customer-{number % 7}".encode(), json.dumps(value).encode(), (("source", b"web"),))


async def commit(bootstrap: str, group_id: str, offsets: dict[int, int]) -> None:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group_id, enable_auto_commit=False)
    async with consumer:
        wanted = {aiokafka.TopicPartition("orders", each): offset for each, offset in offsets.items()}
        consumer.assign(list(wanted))
        await consumer.commit(wanted)


async def take(page: BrowserPage, name: str) -> None:
    path = ASSETS / f"console-{name}.png"
    await page.evaluate("document.activeElement.blur()")
    await page.screenshot(path)
    size = path.stat().st_size
    assert size <= PICTURE_BYTES_MAX, f"{path} has {size} bytes"
    print(path, size)


async def produce(bootstrap: str) -> None:
    """A little more, then less, so that the lines are not straight."""
    for second in range(SECONDS_OF_RATES):
        for partition in range(3):
            records = [order(number) for number in range(20 + 15 * (second % 5))]
            await asyncio.to_thread(confluent.write, bootstrap, "orders", records, partition=partition)
        await asyncio.sleep(1)


async def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        ports = {node_id: free_port() for node_id in (1, 2, 3)}
        own = {node_id: {"http.port": port} for node_id, port in ports.items()}
        cluster = ProcessCluster(directory, SqliteEngine(directory), own_properties=own)
        try:
            await asyncio.to_thread(cluster.start)
            bootstrap = cluster.bootstrap
            for topic in ("invoices", "orders"):
                await asyncio.to_thread(confluent.make_topic, bootstrap, topic, partitions=3, replicas=3)
            await commit(bootstrap, "billing", {0: 0, 1: 0, 2: 0})
            async with open_browser(directory) as page:
                await page.resize(WIDTH, HEIGHT)
                await page.prefer("light")
                await take_all(page, f"http://127.0.0.1:{ports[1]}/", cluster)
        finally:
            await asyncio.to_thread(cluster.close)


async def take_all(page: BrowserPage, url: str, cluster: ProcessCluster) -> None:
    bootstrap = cluster.bootstrap
    await page.open(url)
    await produce(bootstrap)
    await take(page, "cluster")

    await page.open(f"{url}#/topics/orders/messages?from=last:30")
    await page.wait("document.getElementById('messages')?.rows.length > 5")
    await take(page, "messages")

    await page.open(f"{url}#/groups/billing")
    await page.wait("document.querySelector('.chart')?.querySelector('polyline').points.length > 1")
    await asyncio.gather(produce(bootstrap), follow(bootstrap))
    await take(page, "group")

    victim = 3 if cluster.leader("orders") != 3 else 2
    await asyncio.to_thread(cluster.brokers[victim].kill)
    await page.open(f"{url}#/topics/orders")
    await page.wait(
        "[...(document.getElementById('topic-partitions')?.rows ?? [])].some((row) => row.cells[4].className)"
    )
    await page.click("#topic-partitions button", text="why?")
    await page.wait("document.getElementById('why-sentence')?.textContent")
    await take(page, "why")


async def follow(bootstrap: str) -> None:
    """A group that reads, but not all."""
    for step in range(1, SECONDS_OF_RATES // 4):
        await commit(bootstrap, "billing", dict.fromkeys(range(3), 150 * step))
        await asyncio.sleep(4)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))

"""``minikafka-broker`` without the accounting of requests and traffic: what ``bench_metrics`` compares with.

There is no such option, and a flag for it would cost what it is to save. So the lines that count are taken
out of the source while it is imported. A line that is not there any more ends the process: then this table
is to be changed with the code.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType

WITHOUT: dict[str, list[tuple[str, str]]] = {
    "minikafka.server.replica.replica_manager": [
        ("        stats = partition.stats\n", ""),
        ("        stats.produce_requests += 1\n", ""),
        ("        stats.messages_in += info.last_offset - info.first_offset + 1\n", ""),
        ("        stats.bytes_in += len(records)\n", ""),
        ("            self.stats.replication_bytes_in += info.size_bytes\n", ""),
    ],
    "minikafka.server.dispatch.repeated_produce": [
        (
            "        tally = self._tally\n"
            "        timing = None if tally.until_timed > 0 else self._timing(len(view))\n",
            "",
        ),
        (
            "        first_offset = info.first_offset\n"
            "        tally.until_timed -= 1  # whom the append woke may have been here too\n"
            "        tally.bytes_in += len(records)\n"
            "        if info.last_offset != first_offset:\n"
            "            tally.further_records += info.last_offset - first_offset\n"
            "        client.produced_bytes += len(view)\n",
            "",
        ),
        ("base_offset=first_offset", "base_offset=info.first_offset"),
        (" if timing is None else self._timed(timing, result)", ""),
        ("        self._tally = partition.stats.tally(self._counter)\n", ""),
    ],
    "minikafka.server.dispatch.repeated_fetch": [
        ("            stats.fetch_requests += len(wanted)\n", ""),
        ("            stats.bytes_out += records_bytes\n", "            pass\n"),
        ("        self._client.fetched_bytes += size_bytes\n", ""),
        ("        self._metrics.note(self._version)\n", ""),
        ("if not self._counter.count & TIMED_MASK", "if False"),
    ],
    "minikafka.server.dispatch.dispatcher": [
        ("        if not metrics.note(header.api_version):\n    ", ""),
        (
            "            metrics = fetch_metrics(self._services.request_metrics, request)\n",
            "            pass\n",
        ),
    ],
    "minikafka.network.connection": [
        (
            "            self._lags = True\n"
            "            self.received_ns = self.received_ns or self._now_ns()\n",
            "",
        ),
        (
            "            self._lags = True\n"
            "            if not self.received_ns:  # all but the first have to wait\n"
            "                self.received_ns = self._now_ns()\n",
            "",
        ),
        ("            self.received_ns = 0\n", ""),
        ("        if responses.observers:\n            responses.tell_observers()\n", ""),
    ],
    "minikafka.network.responses": [
        ("            if self.observer is not None:\n                self.observer.completed()\n", ""),
        (
            "            if response.observer is not None:\n"
            "                response.observer.left()\n"
            "                self.observers.append(response.observer)\n",
            "",
        ),
    ],
    "minikafka.server.replica.partition_reads": [("            partition.stats.fetch_requests += 1\n", "")],
    "minikafka.server.apis.fetch": [("        _count(services, told, params)\n", "")],
}
"""What to find in the source of each module, once, and what to put there."""


def uncounted(name: str, source: str) -> str:
    """The source of a module without what counts.

    Raises:
        LookupError: the source is not what the table says.
    """
    for text, replacement in WITHOUT[name]:
        if source.count(text) != 1:
            raise LookupError(f"{name} has {source.count(text)} times, not once: {text!r}")
        source = source.replace(text, replacement)
    return source


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        source = self.get_data(self.path).decode()
        code: CodeType = compile(uncounted(fullname, source), self.path, "exec", dont_inherit=True)
        return code


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path) if fullname in WITHOUT else None
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin)
        return spec


def install() -> None:
    """From here on modules are imported without it."""
    sys.meta_path.insert(0, _Finder())


if __name__ == "__main__":
    install()
    from minikafka.cli.broker import main

    sys.exit(main())

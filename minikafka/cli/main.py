"""``minikafka <subcommand>``: finds the subcommand's module and hands over; and ``minikafka-broker``, as pip
installs it (``broker``).

Nothing is imported before it is needed, so that ``minikafka --help`` answers at once.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType, SimpleNamespace

from minikafka import __version__

SUBCOMMANDS: dict[str, tuple[str, str]] = {
    "acls": ("acls", "list, add and remove access control lists"),
    "analyze": ("analyze", "analyze log directories; compare replicas (Spark)"),
    "bench": ("bench", "benchmark any broker: throughput, latency, comparisons"),
    "broker": ("broker", "run a broker"),
    "certs": ("certs", "a certificate authority; certificates for brokers and clients"),
    "cluster": ("cluster.command", "run several brokers on this machine; describe a cluster"),
    "compact": ("compact", "keep the newest record of each key in a log directory; by Spark"),
    "completion": ("completion", "print a completion script for bash, zsh or fish"),
    "configs": ("configs", "configuration of topics, brokers, groups, users, clients, addresses"),
    "console": ("console.command", "serve the console: a cluster, its messages and groups, as a page"),
    "consume": ("terminal:consume", "print the records of a topic"),
    "delegation-tokens": ("delegation_tokens", "create, renew, expire and describe delegation tokens"),
    "dump-log": ("dump_log.command", "look into segments, indexes and checkpoints; verify them"),
    "elect-leaders": ("reassign.command:elect_leaders", "elect preferred or unclean leaders"),
    "events": ("events", "what the brokers have decided of late, and why: a flight recorder"),
    "export": ("export", "records of log directories to Parquet, each exactly once (Spark)"),
    "features": ("features", "describe, raise and lower the levels of a cluster's features"),
    "groups": ("groups", "list, describe and delete consumer groups; reset their offsets"),
    "import": ("import_", "rows of a table into a topic's segment files, without a broker (Spark)"),
    "produce": ("terminal:produce", "write lines of standard input as records"),
    "profile": ("profile", "keep addresses and settings of clusters, in place of -b"),
    "purgatory": ("purgatory", "which requests and timers wait, under which keys, since when, until when"),
    "quotas": ("quotas", "show and change client quotas; why a client was throttled"),
    "reassign": ("reassign.command", "move replicas: plan, execute, verify, cancel"),
    "record": ("record", "keep what clients ask of a cluster, and the answers, for replay"),
    "replay": ("replay", "ask a cluster what was recorded, and compare the answers"),
    "share": ("share", "list, describe and delete share groups; reset and delete their offsets"),
    "streams": ("streams", "list, describe and delete streams groups; reset and delete their offsets"),
    "topics": ("topics", "create, list, describe, alter and delete topics"),
    "tour": ("tour.command", "watch brokers replicate: stories, step by step, in virtual time"),
    "trace": ("trace", "follow a record over all brokers, as a time line"),
    "transactions": ("transactions", "list and describe transactions; find and abort hanging ones"),
    "users": ("users", "SCRAM users: create, change password, delete, list; end their sessions"),
    "why": ("why.command", "why a partition, fetch, group, … is as it is, with the evidence"),
    "why-denied": ("acls:why_denied", "which ACL decides what a user may do, or which one is missing"),
}
"""Name → module below ``minikafka.cli`` with ``parser()`` and ``main(argv) -> exit status``, and what it is
for. Where a module has two commands, ``module:name`` is the one with ``name_parser()`` and ``name(argv)``."""

USAGE_ERROR = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run the subcommand that ``argv`` names. Returns the exit status: 2 for bad usage."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments:
        print(_help(), file=sys.stderr)
        return USAGE_ERROR
    name, rest = arguments[0], arguments[1:]
    if name in ("-h", "--help", "help"):
        print(_help())
        return 0
    if name in ("-V", "--version"):
        print(f"minikafka {__version__}")
        return 0
    if name not in SUBCOMMANDS:
        print(f"minikafka: there is no subcommand {name!r}{_suggestion(name)}", file=sys.stderr)
        return USAGE_ERROR
    run: Callable[[Sequence[str]], int] = load(SUBCOMMANDS[name][0]).main
    return run(rest)


def load(place: str) -> ModuleType | SimpleNamespace:
    """What has a subcommand's ``parser`` and ``main``, by its place in ``SUBCOMMANDS``."""
    name, _, command = place.partition(":")
    module = import_module(f"minikafka.cli.{name}")
    if not command:
        return module
    return SimpleNamespace(parser=getattr(module, f"{command}_parser"), main=getattr(module, command))


def broker() -> int:
    """Run a broker until a signal stops it. Returns the exit status.

    What a broker imports stays. Python's garbage collector would look through it dozens of times, for
    nothing, 15 ms of a start. So it is off before the first import, as for ``python -m
    minikafka.cli.broker``, which then turns it on when everything is there.
    """
    gc.disable()
    from minikafka.cli import broker

    return broker.main()


def _help() -> str:
    width = max(map(len, SUBCOMMANDS))
    lines = (f"  {name:<{width}}  {purpose}" for name, (_, purpose) in SUBCOMMANDS.items())
    return "\n".join(
        [
            "usage: minikafka SUBCOMMAND [options]",
            "",
            "A Kafka-compatible broker, and tools that work with any.",
            "",
            *lines,
            "",
            "minikafka SUBCOMMAND --help says more.",
        ]
    )


def _suggestion(name: str) -> str:
    import difflib

    close = difflib.get_close_matches(name, SUBCOMMANDS, n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else f"; there are {', '.join(SUBCOMMANDS)}"


if __name__ == "__main__":
    sys.exit(main())

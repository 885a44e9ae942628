"""``minikafka quotas``: show and change client quotas, and say why a client was throttled.

Kafka: the quota part of ``kafka-configs.sh``; ``why`` is minikafka's own, and asks every broker of the
cluster for the throttles that it remembers (``server.apis.client_quotas``).

An entity is ``client-id=NAME``, ``user=NAME``, ``user=NAME,client-id=NAME``, ``ip=ADDRESS``, or a bare client
id; a part without a name is the default. Without authentication every client is the user ANONYMOUS. An
address has one quota, ``connection_creation_rate`` (KIP-612), and ``why`` does not speak of it: a connection
that waits is no throttled request.

Exit status: 0 when all was done, 1 when something was refused or no broker answers, 2 for bad usage.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from minikafka.cli.groups import table
from minikafka.cli.shared.admin_client import AdminClient, raise_error
from minikafka.cli.shared.commands import (
    OK,
    ProfileParser,
    add_connection_options,
    as_json,
    error_of,
    parse_bytes,
    run,
    take_connection,
    with_action_first,
)
from minikafka.config.client_quotas import (
    CLIENT_ID,
    IP,
    THROTTLE,
    USER,
    MatchType,
    QuotaType,
    checked_quota,
)
from minikafka.errors import KafkaError
from minikafka.metrics.sensors import Throttle, number_text
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.units import format_duration

PROG = "minikafka quotas"
ACTIONS = ("describe", "alter", "why")

Entity = Mapping[str, str | None]
"""Entity type → name; None: the default."""

_ENTITY = re.compile(r"(?:(user)(?:=([^,]+))?)?(?:(?:^|,)(client-id)(?:=(.+))?)?", re.DOTALL)
_ADDRESS = re.compile(r"ip(?:=(.+))?", re.DOTALL)


class SeenThrottle(NamedTuple):
    """A throttle, and the broker that remembers it."""

    broker: int
    throttle: Throttle


def parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka quotas``."""
    options = ProfileParser(
        prog=PROG,
        description="Quotas of clients, users and addresses, and why a client was throttled.",
        epilog="ENTITY: client-id=NAME, user=NAME, user=NAME,client-id=NAME, ip=ADDRESS, or a client id. "
        "Without =NAME a part is the default: all that have no quota of their own. Quotas: "
        + ", ".join(quota.value for quota in QuotaType if not quota.is_of_addresses)
        + f"; of an address {QuotaType.CONNECTION_CREATION.value}.",
        allow_abbrev=False,
    )
    actions = options.add_subparsers(dest="action", required=True, metavar="ACTION")
    describe = actions.add_parser("describe", help="the quotas that are set", allow_abbrev=False)
    describe.add_argument("entity", nargs="?", metavar="ENTITY", help="only of this one")
    alter = actions.add_parser("alter", help="set and remove quotas", allow_abbrev=False)
    alter.add_argument("entity", metavar="ENTITY")
    alter.add_argument(
        "--set", action="append", default=[], metavar="QUOTA=VALUE", help="bytes also as 50MB or 64MiB"
    )
    alter.add_argument("--remove", action="append", default=[], metavar="QUOTA", help="back to no quota")
    alter.add_argument("--dry-run", action="store_true", help="only let the broker check it")
    why = actions.add_parser("why", help="the last throttles of an entity", allow_abbrev=False)
    why.add_argument("entity", metavar="ENTITY")
    for each in (describe, why):
        each.add_argument("--json", action="store_true", help="print JSON")
    for each in actions.choices.values():
        add_connection_options(each)
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run an action. Returns the exit status."""
    options = parser()
    arguments = options.parse_args(with_action_first(sys.argv[1:] if argv is None else argv, ACTIONS))
    try:
        take_connection(arguments)
        arguments.entity = {} if arguments.entity is None else parse_entity(arguments.entity)
        is_address = IP in arguments.entity
        if arguments.action == "alter":
            arguments.changes = parse_changes(arguments.set, arguments.remove, of_address=is_address)
        if arguments.action == "why" and is_address:
            raise ValueError("why is about requests; the quota of an address is about new connections")
    except ValueError as error:
        options.error(str(error))
    except KafkaError as error:
        options.error(error.message or str(error))
    return run(PROG, _run(arguments))


def parse_entity(text: str) -> Entity:
    """See the module header. Raises ValueError: there is no name."""
    if (address := _ADDRESS.fullmatch(text)) is not None:
        return {IP: address[1]}
    match = _ENTITY.fullmatch(text)
    if not text or (match is not None and not match[0]):
        raise ValueError("ENTITY is empty")
    if match is None:
        if text.startswith((f"{USER}=", f"{CLIENT_ID}=", f"{IP}=")):
            raise ValueError(
                f"{text}: must be like user=NAME, client-id=NAME, user=NAME,client-id=NAME or ip=ADDRESS"
            )
        return {CLIENT_ID: text}
    return {match[kind]: match[kind + 1] for kind in (1, 3) if match[kind] is not None}


def parse_changes(
    settings: Sequence[str], removals: Sequence[str], *, of_address: bool = False
) -> dict[str, float | None]:
    """What to set, and (None) what to remove, by Kafka's keys.

    Raises:
        ValueError: nothing, the same twice, no number. KafkaError: no such quota, or no such value.
    """
    changes: dict[str, float | None] = {}
    for setting in settings:
        key, found, text = setting.partition("=")
        if not found:
            raise ValueError(f"--set {setting}: must be QUOTA=VALUE")
        if key in changes:
            raise ValueError(f"{key} is given twice")
        _, changes[key] = checked_quota(key, _number(key, text), of_address=of_address)
    for key in removals:
        if key in changes:
            raise ValueError(f"{key} is given twice")
        checked_quota(key, 1, of_address=of_address)
        changes[key] = None
    if not changes:
        raise ValueError("nothing to change: give --set or --remove")
    return changes


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        if key in (QuotaType.PRODUCE.value, QuotaType.FETCH.value):
            return float(parse_bytes(text))
        raise ValueError(f"{key}={text}: must be a number") from None


async def _run(arguments: argparse.Namespace) -> int:
    async with AdminClient.of(arguments, "minikafka-quotas") as admin:
        match arguments.action:
            case "describe":
                return await _describe(admin, arguments)
            case "alter":
                return await _alter(admin, arguments)
            case _:
                return await _why(admin, arguments)


async def _describe(admin: AdminClient, arguments: argparse.Namespace) -> int:
    components = [
        _component(kind, MatchType.DEFAULT if name is None else MatchType.EXACT, name)
        for kind, name in arguments.entity.items()
    ]
    answer = await admin.ask_any(
        ApiKey.DESCRIBE_CLIENT_QUOTAS, {"components": components, "strict": bool(components)}
    )
    raise_error(answer)
    found = [(_entity(entry), _values(entry)) for entry in answer.entries or ()]
    found.sort(key=lambda each: entity_text(each[0]))
    if arguments.json:
        print(as_json([{"entity": entity, "quotas": quotas} for entity, quotas in found]))
        return OK
    rows = [
        [entity_text(entity), key, f"{value:.15g}"]
        for entity, quotas in found
        for key, value in sorted(quotas.items())
    ]
    print("\n".join(table(["ENTITY", "QUOTA", "VALUE"], rows)) if rows else "No quotas are set.")
    return OK


async def _alter(admin: AdminClient, arguments: argparse.Namespace) -> int:
    entry = {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in arguments.entity.items()],
        "ops": [
            {"key": key, "value": value or 0.0, "remove": value is None}
            for key, value in arguments.changes.items()
        ],
    }
    answer = await admin.ask_any(
        ApiKey.ALTER_CLIENT_QUOTAS, {"entries": [entry], "validate_only": arguments.dry_run}
    )
    for result in answer.entries:
        error = error_of(result.error_code, result.error_message)
        if error is not None:
            raise error
    done = "can be changed" if arguments.dry_run else "are changed"
    print(f"The quotas of {entity_text(arguments.entity)} {done}.")
    return OK


async def last_throttles(admin: AdminClient, broker: int, entity: Entity) -> list[SeenThrottle]:
    """Those of an entity (empty: of all) that a broker remembers, the oldest first. Raises KafkaError: also
    that it is Apache Kafka, which remembers none."""
    components = [
        _component(kind, MatchType.ANY if name is None else MatchType.EXACT, name)
        for kind, name in {**entity, THROTTLE: None}.items()
    ]
    answer = await admin.ask_broker(
        broker, ApiKey.DESCRIBE_CLIENT_QUOTAS, {"components": components, "strict": False}
    )
    raise_error(answer)
    return [SeenThrottle(broker, _throttle(entry)) for entry in answer.entries]


async def _why(admin: AdminClient, arguments: argparse.Namespace) -> int:
    seen: list[SeenThrottle] = []
    for broker in (await admin.nodes()).brokers:
        seen += await last_throttles(admin, broker, arguments.entity)
    seen.sort(key=lambda each: each.throttle.at_ms)
    if arguments.json:
        print(as_json([_as_data(each) for each in seen]))
    elif seen:
        heads = "TIME BROKER CLIENT-ID QUOTA OBSERVED BOUND WINDOW THROTTLED WHY"
        print("\n".join(table(heads.split(), [_row(each) for each in seen])))
    else:
        print(f"No broker has throttled {entity_text(arguments.entity)} as far as it remembers.")
    return OK


def _component(kind: str, match_type: MatchType, name: str | None) -> dict[str, Any]:
    return {"entity_type": kind, "match_type": int(match_type), "match": name}


def _entity(entry: Any) -> dict[str, str | None]:
    return {part.entity_type: part.entity_name for part in entry.entity}


def _values(entry: Any) -> dict[str, float]:
    return {value.key: value.value for value in entry.values}


def _throttle(entry: Any) -> Throttle:
    entity, values = _entity(entry), _values(entry)
    return Throttle(
        quota=QuotaType((entity[THROTTLE] or "").partition("#")[0]),
        user=entity[USER] or "",
        client_id=entity[CLIENT_ID] or "",
        observed=values["observed"],
        bound=values["bound"],
        window_ms=int(values["window_ms"]),
        throttle_time_ms=int(values["throttle_time_ms"]),
        at_ms=int(values["at_ms"]),
    )


def _row(seen: SeenThrottle) -> list[str]:
    throttle = seen.throttle
    return [
        _time(throttle.at_ms),
        str(seen.broker),
        throttle.client_id or "-",
        throttle.quota.value,
        number_text(throttle.observed),
        number_text(throttle.bound),
        format_duration(throttle.window_ms) if throttle.window_ms else "-",
        f"{throttle.throttle_time_ms} ms",
        throttle.formula,
    ]


def _as_data(seen: SeenThrottle) -> dict[str, Any]:
    throttle = seen.throttle
    fields = throttle._asdict() | {"quota": throttle.quota.value, "formula": throttle.formula}
    return {"broker": seen.broker, "time": _time(throttle.at_ms), **fields}


def _time(at_ms: int) -> str:
    at = datetime.fromtimestamp(at_ms / 1000, tz=UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def entity_text(entity: Entity) -> str:
    """As it can be typed; the default without a name."""
    parts = sorted(entity.items(), reverse=True)  # the user first, whatever the broker's order is
    return ",".join(kind if name is None else f"{kind}={name}" for kind, name in parts)


if __name__ == "__main__":
    sys.exit(main())

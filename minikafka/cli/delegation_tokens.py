"""``minikafka delegation-tokens``: create, renew, expire and describe delegation tokens (KIP-48).

Kafka: ``kafka-delegation-tokens.sh`` (``DelegationTokenCommand``), its options and its output. The HMAC is a
token's password: ``create`` and ``describe`` print it, as in Kafka, because clients need it; elsewhere it is
taken from a file too (``--hmac-file``), and not repeated.

Exit status: 0 when all was done, 1 when something was refused or no broker answers, 2 for bad usage.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from minikafka.cli.shared.admin_client import AdminClient, raise_error
from minikafka.cli.shared.commands import (
    OK,
    ProfileParser,
    add_connection_options,
    run,
    take_connection,
    with_action_first,
)
from minikafka.cli.shared.credentials import read_password
from minikafka.config.definition import LONG_MAX
from minikafka.errors import ConfigError
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.security.acl import KafkaPrincipal, parse_principal

PROG = "minikafka delegation-tokens"
ACTIONS = ("create", "renew", "expire", "describe")

_ROW = "%-15s %-30s %-15s %-15s %-25s %-15s %-15s %-15s"
_HEADS = ("TOKENID", "HMAC", "OWNER", "REQUESTER", "RENEWERS", "ISSUEDATE", "EXPIRYDATE", "MAXDATE")


def parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka delegation-tokens``."""
    options = ProfileParser(
        prog=PROG,
        description="Delegation tokens: passwords for a while, which a user makes of its own login. The "
        "options of kafka-delegation-tokens.sh.",
        allow_abbrev=False,
    )
    actions = options.add_subparsers(dest="action", required=True, metavar="ACTION")
    create = actions.add_parser("create", help="make a token", allow_abbrev=False)
    create.add_argument(
        "--max-life-time-period",
        type=_period,
        default=-1,
        metavar="MS",
        help="how long it can be renewed (-1: delegation.token.max.lifetime.ms)",
    )
    create.add_argument(
        "--renewer-principal",
        action="append",
        default=[],
        metavar="User:NAME",
        help="who else may renew it; may be repeated",
    )
    renew = actions.add_parser("renew", help="let a token hold for longer", allow_abbrev=False)
    renew.add_argument(
        "--renew-time-period",
        type=_period,
        default=-1,
        metavar="MS",
        help="from now on (-1: delegation.token.expiry.time.ms)",
    )
    expire = actions.add_parser("expire", help="let a token end", allow_abbrev=False)
    expire.add_argument(
        "--expiry-time-period", type=_period, default=-1, metavar="MS", help="from now on (-1: at once)"
    )
    describe = actions.add_parser("describe", help="the tokens that one may see", allow_abbrev=False)
    for each in (renew, expire):
        hmac = each.add_mutually_exclusive_group(required=True)
        hmac.add_argument("--hmac", metavar="HMAC", help="the token's HMAC, base64")
        hmac.add_argument("--hmac-file", metavar="FILE", help="where it is; its owner alone may read it")
    for each in (create, describe):
        each.add_argument(
            "--owner-principal",
            action="append",
            default=[],
            metavar="User:NAME",
            help="the owner, if it is not who asks",
        )
    for each in actions.choices.values():
        add_connection_options(each)
    return options


def _period(text: str) -> int:
    """Milliseconds, as the requests have them. Raises ArgumentTypeError."""
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or int(digits[:20]) > LONG_MAX:
        raise argparse.ArgumentTypeError(f"{text}: must be milliseconds, or -1")
    return int(text)


def main(argv: Sequence[str] | None = None) -> int:
    """Run an action. Returns the exit status."""
    options = parser()
    arguments = options.parse_args(with_action_first(sys.argv[1:] if argv is None else argv, ACTIONS))
    try:
        take_connection(arguments)
        arguments.owners = _principals(getattr(arguments, "owner_principal", ()))
        arguments.renewers = _principals(getattr(arguments, "renewer_principal", ()))
        if arguments.action == "create" and len(arguments.owners) > 1:
            raise ValueError("--owner-principal: a token has one owner")
    except (ValueError, ConfigError) as error:
        options.error(str(error))
    return run(PROG, _run(arguments))


def _principals(texts: Iterable[str]) -> list[KafkaPrincipal]:
    """Raises ConfigError."""
    return [parse_principal(each.strip()) for each in texts]


async def _run(arguments: argparse.Namespace) -> int:
    async with AdminClient.of(arguments, "minikafka-delegation-tokens") as admin:
        match arguments.action:
            case "create":
                return await _create(admin, arguments)
            case "renew":
                body = {"hmac": _hmac(arguments), "renew_period": arguments.renew_time_period}
                answer = await admin.ask_controller(ApiKey.RENEW_DELEGATION_TOKEN, body)
                print(f"Completed renew operation. New expiry date : {_date(answer.expiry_timestamp)}")
            case "expire":
                body = {"hmac": _hmac(arguments), "expiry_time_period": arguments.expiry_time_period}
                answer = await admin.ask_controller(ApiKey.EXPIRE_DELEGATION_TOKEN, body)
                print(f"Completed expire operation. New expiry date : {_date(answer.expiry_timestamp)}")
            case _:
                return await _describe(admin, arguments.owners)
    return OK


async def _create(admin: AdminClient, arguments: argparse.Namespace) -> int:
    owner = arguments.owners[0] if arguments.owners else None
    renewers = ", ".join(map(str, arguments.renewers))
    print(
        f"Calling create token operation with renewers :[{renewers}] , max-life-time-period "
        f":{arguments.max_life_time_period}"
    )
    body = {
        "owner_principal_type": owner and owner.type,
        "owner_principal_name": owner and owner.name,
        "renewers": [
            {"principal_type": each.type, "principal_name": each.name} for each in arguments.renewers
        ],
        "max_lifetime": arguments.max_life_time_period,
    }
    answer = await admin.ask_controller(ApiKey.CREATE_DELEGATION_TOKEN, body)
    print(f"Created delegation token with tokenId : {answer.token_id}")
    _print([answer], renewers=arguments.renewers)
    return OK


async def _describe(admin: AdminClient, owners: Sequence[KafkaPrincipal]) -> int:
    if owners:
        print(f"Calling describe token operation for owners: [{', '.join(map(str, owners))}]")
    else:
        print("Calling describe token operation for current user.")
    body = {"owners": [{"principal_type": each.type, "principal_name": each.name} for each in owners] or None}
    answer = await admin.ask_any(ApiKey.DESCRIBE_DELEGATION_TOKEN, body)
    raise_error(answer)
    print(f"Total number of tokens : {len(answer.tokens)}", end="")
    _print(answer.tokens)
    return OK


def _print(tokens: Iterable[Any], *, renewers: Sequence[KafkaPrincipal] = ()) -> None:
    """As ``DelegationTokenCommand.printToken`` does. One that was just made does not name its renewers."""
    print(f"\n{_ROW % _HEADS}")
    for token in tokens:
        named = renewers or [
            KafkaPrincipal(each.principal_type, each.principal_name)
            for each in getattr(token, "renewers", ())
        ]
        row = (
            token.token_id,
            base64.b64encode(token.hmac).decode(),
            f"{token.principal_type}:{token.principal_name}",
            _requester(token),
            f"[{', '.join(map(str, named))}]",
            _date(token.issue_timestamp),
            _date(token.expiry_timestamp),
            _date(token.max_timestamp),
        )
        print(f"\n{_ROW % row}")


def _requester(token: Any) -> str:
    """Versions below 3 do not say; then it is the owner."""
    if not getattr(token, "token_requester_principal_name", ""):
        return f"{token.principal_type}:{token.principal_name}"
    return f"{token.token_requester_principal_type}:{token.token_requester_principal_name}"


def _date(timestamp: datetime | int) -> str:
    at = timestamp if isinstance(timestamp, datetime) else datetime.fromtimestamp(timestamp / 1000, tz=UTC)
    return at.astimezone().strftime("%Y-%m-%dT%H:%M")


def _hmac(arguments: argparse.Namespace) -> bytes:
    """Raises ConfigError: it is no base64."""
    text = arguments.hmac
    if text is None:
        text = read_password(arguments.hmac_file, whose="the token")
    try:
        return base64.b64decode(text.strip(), validate=True)
    except binascii.Error:
        raise ConfigError("the HMAC is not base64") from None


if __name__ == "__main__":
    sys.exit(main())

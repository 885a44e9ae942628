"""``minikafka users``: who may log in with SCRAM, and an end to a user's sessions.

Kafka: the part of ``kafka-configs.sh`` about credentials (KIP-554). ``kill-sessions`` is minikafka's own:
every broker closes the connections that a user has logged in on (``server.apis.client_quotas``).

With ``--coordination`` the credentials are written into the store itself, so that the first broker finds
them; ``--command-config`` has the broker's properties ``zookeeper.…`` then, as Kafka's
``--zk-tls-config-file``. Kafka: ``kafka-configs.sh --zookeeper`` (until 3.x),
``ZkAdminManager.alterUserScramCredentials``, ``ScramCredentialUtils``. A user's credentials lie at
``/config/users/<user>``, a property for each mechanism, beside the user's quotas. What is written carries the
notification that running brokers follow.

No password is on a command line or in a message: see ``cli.shared.credentials``.

Exit status: 0 when all was done, 1 when something was refused or no broker answers, 2 for bad usage.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Final, Self

from minikafka.cli.groups import table
from minikafka.cli.shared.admin_client import AdminClient, raise_error
from minikafka.cli.shared.commands import (
    OK,
    CommandError,
    ProfileParser,
    add_connection_options,
    as_json,
    run,
    take_connection,
    take_properties,
)
from minikafka.cli.shared.credentials import (
    ITERATIONS_DEFAULT,
    MECHANISMS,
    SaltedPassword,
    ScramMechanism,
    add_password_option,
    alter_users,
    check_iterations,
    describe_users,
    read_password,
    salted,
)
from minikafka.config.broker import BROKER_CONFIG_KEYS, BrokerConfig, broker_config
from minikafka.config.broker_checks import SQLITE_SCHEME
from minikafka.config.client_quotas import KILL, SESSIONS
from minikafka.coordination import paths
from minikafka.coordination.sqlite import SqliteStore
from minikafka.coordination.store import (
    BadVersionError,
    CoordinationStore,
    CreateOp,
    NodeExistsError,
    NoNodeError,
    Op,
    SetOp,
    StoreError,
)
from minikafka.errors import ConfigError, ErrorCode, KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.security.scram import credential_of, decode_credential, encode_credential
from minikafka.system_clock import SystemClock

ZOOKEEPER_SCHEME: Final = "zookeeper://"
ZOOKEEPER_PREFIX: Final = "zookeeper."
"""Of the properties that say how ZooKeeper is reached."""
WRITE_ATTEMPTS_MAX = 5
"""Lost races before a change gives up."""

PROG = "minikafka users"
DEFAULT_MECHANISM = "SCRAM-SHA-512"

Credentials = Mapping[ScramMechanism, int]
"""A user's mechanisms, with their iterations."""


# Users in the store


class StoredUsers:
    """The users of a cluster. Methods raise CommandError when the store cannot be used."""

    def __init__(self, store: CoordinationStore) -> None:
        self._store = store

    def __repr__(self) -> str:
        return f"StoredUsers({self._store!r})"

    @classmethod
    async def open(cls, url: str, properties: Mapping[str, str], *, creates: bool = False) -> Self:
        """``sqlite:///PATH`` (of an absolute path: four slashes) or ``zookeeper://HOST:PORT,…/CHROOT``, as
        ``coordination`` and ``zookeeper.connect`` of a broker name it. ``properties``: a broker's; of these
        ``zookeeper.…`` count, as those of ``--zk-tls-config-file`` do for Kafka's tools.

        Raises:
            CommandError: the store cannot be used, or a property is wrong.
        """
        try:
            return cls(await _open(url, properties, creates=creates))
        except ConfigError as error:
            raise CommandError(f"--command-config: {error}") from None
        except StoreError as error:
            raise CommandError(f"--coordination {url}: {error}") from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._store.close()

    async def describe(self) -> dict[str, dict[ScramMechanism, int]]:
        """User → mechanism → iterations, sorted."""
        found = {}
        try:
            for node in await self._store.children(paths.USER_CONFIGS):
                credentials = _credentials((await self._read(node))[0])
                if node != paths.DEFAULT_ENTITY and credentials:
                    found[paths.named_config(node)] = credentials
        except NoNodeError:  # no broker has started on it yet
            return {}
        except StoreError as error:
            raise CommandError(f"cannot read the users: {error}") from None
        return dict(sorted(found.items()))

    async def set(self, user: str, credential: SaltedPassword) -> None:
        """Make or replace the credential of one mechanism."""
        name = credential.mechanism.mechanism_name
        text = encode_credential(
            credential_of(name, credential.salted_password, credential.salt, credential.iterations)
        )
        await self._change(user, lambda current: {**current, name: text})

    async def delete(self, user: str, mechanism: ScramMechanism) -> None:
        """Remove the credential of one mechanism."""
        name = mechanism.mechanism_name
        await self._change(
            user, lambda current: {key: value for key, value in current.items() if key != name}
        )

    async def _change(self, user: str, change: Callable[[Mapping[str, str]], dict[str, str]]) -> None:
        node = paths.sanitize(user)
        path = f"{paths.USER_CONFIGS}/{node}"
        announcement = CreateOp(
            paths.CONFIG_CHANGE_PREFIX,
            paths.encode_config_change(f"{paths.USERS}/{node}"),
            sequential=True,
        )
        try:
            for parent in (paths.USER_CONFIGS, paths.CONFIG_CHANGES):
                await self._store.ensure_path(parent)
            for _ in range(WRITE_ATTEMPTS_MAX):
                current, version = await self._read(node)
                data = paths.encode_config(change(current))
                write: Op = CreateOp(path, data) if version is None else SetOp(path, data, version)
                try:
                    await self._store.multi([write, announcement])
                    return
                except (BadVersionError, NodeExistsError, NoNodeError):
                    continue  # another was faster
        except StoreError as error:
            raise CommandError(f"cannot change the user {user}: {error}") from None
        raise CommandError(f"cannot change the user {user}: others change it all the time")

    async def _read(self, node: str) -> tuple[dict[str, str], int | None]:
        """What is set for a user, and its version; None: there is no node."""
        path = f"{paths.USER_CONFIGS}/{node}"
        try:
            found = await self._store.get(path)
        except NoNodeError:
            return {}, None
        return paths.decode_config(found.data, path), found.stat.version


async def _open(url: str, properties: Mapping[str, str], *, creates: bool) -> CoordinationStore:
    """Raises StoreError, CommandError, ConfigError."""
    config = _zookeeper_config(properties)
    session_timeout_ms = config.zookeeper_session_timeout_ms
    if url.startswith(SQLITE_SCHEME) and url.removeprefix(SQLITE_SCHEME).strip("/"):
        path = url.removeprefix(SQLITE_SCHEME)
        if not creates and not await asyncio.to_thread(os.path.isfile, path):
            raise CommandError(
                f"--coordination {url}: there is no store at {path}; give the path that the "
                "brokers have as coordination, else coordination.sqlite in their first log directory"
            )
        return await SqliteStore.open(path, clock=SystemClock(), session_timeout_ms=session_timeout_ms)
    if not url.startswith(ZOOKEEPER_SCHEME) or not url.removeprefix(ZOOKEEPER_SCHEME):
        raise CommandError(f"--coordination {url}: must be sqlite:///PATH or zookeeper://HOST:PORT/CHROOT")
    try:  # here, because kazoo is an extra
        from minikafka.coordination.zookeeper import ZooKeeperStore, zookeeper_security
    except ModuleNotFoundError:
        raise CommandError("kazoo is not installed: pip install 'minikafka[zookeeper]'") from None
    return await ZooKeeperStore.open(
        url.removeprefix(ZOOKEEPER_SCHEME),
        session_timeout_ms=session_timeout_ms,
        connection_timeout_ms=config.zookeeper_connection_timeout_ms,
        security=await zookeeper_security(config),
    )


def _zookeeper_config(properties: Mapping[str, str]) -> BrokerConfig:
    """What ``properties`` say of ZooKeeper. Unless they say it, who logs in there makes nodes that are for
    brokers alone, as with Kafka's tools (``ConfigCommand``). Raises ConfigError."""
    known = {
        name: value
        for name, value in properties.items()
        if name.startswith(ZOOKEEPER_PREFIX) and name in BROKER_CONFIG_KEYS
    }
    config = broker_config(known)
    shows_certificate = (
        config.zookeeper_ssl_client_enable and config.zookeeper_ssl_keystore_location is not None
    )
    logs_in = config.zookeeper_sasl_jaas_config is not None or shows_certificate
    if "zookeeper.set.acl" in known or not logs_in:
        return config
    return broker_config(known | {"zookeeper.set.acl": "true"})


def _credentials(config: Mapping[str, str]) -> dict[ScramMechanism, int]:
    """The mechanisms that there are credentials for, with their iterations; damaged ones have 0."""
    found = {}
    for name, mechanism in MECHANISMS.items():
        if name in config:
            try:
                found[mechanism] = decode_credential(name, config[name]).iterations
            except ValueError:
                found[mechanism] = 0
    return found


# The command


def parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka users``."""
    options = ProfileParser(
        prog=PROG, description="SCRAM users: who may log in, and with which password.", allow_abbrev=False
    )
    actions = options.add_subparsers(dest="action", required=True, metavar="ACTION")
    create = actions.add_parser("create", help="make a user", allow_abbrev=False)
    change = actions.add_parser(
        "change-password", help="for all mechanisms that the user has", allow_abbrev=False
    )
    delete = actions.add_parser("delete", help="remove a user's credentials", allow_abbrev=False)
    listing = actions.add_parser("list", help="users and their mechanisms", allow_abbrev=False)
    kill = actions.add_parser(
        "kill-sessions", help="close all connections of a user on all brokers, now", allow_abbrev=False
    )
    for each in (create, change, delete, kill):
        each.add_argument("user", metavar="USER", help="the name, without User:")
    for each in (create, change, delete):
        each.add_argument(
            "--mechanism",
            action="append",
            choices=list(MECHANISMS),
            help=f"may be repeated ({DEFAULT_MECHANISM})" if each is create else "only of this one",
        )
    for each in (create, change):
        each.add_argument(
            "--iterations",
            type=int,
            metavar="N",
            default=None,
            help=f"of the key derivation ({ITERATIONS_DEFAULT})",
        )
        add_password_option(each)
    listing.add_argument("--json", action="store_true", help="print JSON")
    for each in (create, change, delete, listing):
        each.add_argument(
            "--coordination",
            metavar="URL",
            help="use the store itself, no broker need run: sqlite:///PATH or "
            "zookeeper://HOST:PORT/CHROOT; --command-config has zookeeper.… of the brokers' properties then",
        )
    for each in actions.choices.values():
        add_connection_options(each)
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run an action. Returns the exit status."""
    options = parser()
    arguments = options.parse_args(argv)
    try:
        if getattr(arguments, "coordination", None) is None:
            take_connection(arguments)
        else:
            arguments.properties = take_properties(arguments)
        if arguments.action in ("create", "change-password") and arguments.iterations is not None:
            for name in arguments.mechanism or MECHANISMS:
                check_iterations(MECHANISMS[name], arguments.iterations)
        if getattr(arguments, "user", None) == "":
            raise ValueError("USER is empty")
    except ValueError as error:
        options.error(str(error))
    return run(PROG, _run(arguments))


async def _run(arguments: argparse.Namespace) -> int:
    if getattr(arguments, "coordination", None) is not None:
        creates = arguments.action == "create"  # also before the first broker starts
        async with await StoredUsers.open(
            arguments.coordination, arguments.properties, creates=creates
        ) as stored:
            return await _act(stored, arguments)
    async with AdminClient.of(arguments, "minikafka-users") as admin:
        if arguments.action == "kill-sessions":
            return await _kill_sessions(admin, arguments.user)
        return await _act(admin, arguments)


async def _act(at: AdminClient | StoredUsers, arguments: argparse.Namespace) -> int:
    if arguments.action == "list":
        return _print(await _described(at), json=arguments.json)
    user = arguments.user
    there = (await _described(at, user)).get(user, {})
    named = [MECHANISMS[name] for name in dict.fromkeys(arguments.mechanism or ())]
    missing = [each.mechanism_name for each in named if each not in there]
    match arguments.action:
        case "create":
            mechanisms = named or [MECHANISMS[DEFAULT_MECHANISM]]
            twice = [each.mechanism_name for each in mechanisms if each in there]
            if twice:
                raise CommandError(
                    f"the user {user} already has a password for {', '.join(twice)}: change-password"
                )
            await _set_password(at, user, dict.fromkeys(mechanisms, ITERATIONS_DEFAULT), arguments)
            print(f"Created the user {user} ({_names(mechanisms)}).")
        case "change-password":
            if not there or missing:
                raise CommandError(_no_such_user(user, missing if there else ()))
            changed = {each: there[each] for each in named or there}
            await _set_password(at, user, changed, arguments)
            print(f"Changed the password of {user} ({_names(changed)}).")
        case _:
            if not there or missing:
                raise CommandError(_no_such_user(user, missing if there else ()))
            gone = named or list(there)
            await _delete(at, user, gone)
            print(f"Deleted the user {user} ({_names(gone)}).")
            print(
                f"Connections that are open stay so until they re-authenticate; {PROG} kill-sessions {user}"
            )
    return OK


def _no_such_user(user: str, mechanisms: Sequence[str]) -> str:
    return f"there is no user {user}" + (f" for {', '.join(mechanisms)}" if mechanisms else "")


def _names(mechanisms: Iterable[ScramMechanism]) -> str:
    return ", ".join(each.mechanism_name for each in sorted(mechanisms))


async def _described(
    at: AdminClient | StoredUsers, user: str | None = None
) -> dict[str, dict[ScramMechanism, int]]:
    if isinstance(at, StoredUsers):
        return await at.describe()
    return await describe_users(at, [] if user is None else [user])


async def _set_password(
    at: AdminClient | StoredUsers, user: str, iterations: Credentials, arguments: argparse.Namespace
) -> None:
    password = await asyncio.to_thread(read_password, arguments.password_file, whose=user, confirms=True)
    made = [
        await asyncio.to_thread(
            salted, each, arguments.iterations or max(iterations[each], ITERATIONS_DEFAULT), password
        )
        for each in iterations
    ]
    if isinstance(at, StoredUsers):
        for each in made:
            await at.set(user, each)
    else:
        await alter_users(at, upsertions=[(user, each) for each in made])


async def _delete(at: AdminClient | StoredUsers, user: str, mechanisms: Sequence[ScramMechanism]) -> None:
    if isinstance(at, StoredUsers):
        for each in mechanisms:
            await at.delete(user, each)
    else:
        await alter_users(at, deletions=[(user, each) for each in mechanisms])


def _print(users: Mapping[str, Credentials], *, json: bool) -> int:
    if json:
        data = [
            {
                "user": user,
                "mechanisms": {each.mechanism_name: count for each, count in sorted(credentials.items())},
            }
            for user, credentials in users.items()
        ]
        print(as_json(data))
        return OK
    rows = [
        [user, each.mechanism_name, str(iterations)]
        for user, credentials in users.items()
        for each, iterations in sorted(credentials.items())
    ]
    print("\n".join(table(["USER", "MECHANISM", "ITERATIONS"], rows)) if rows else "There are no users.")
    return OK


async def _kill_sessions(admin: AdminClient, user: str) -> int:
    """Every broker, also when one of them does not answer: that one is named in the end."""
    entry = {
        "entity": [{"entity_type": SESSIONS, "entity_name": user}],
        "ops": [{"key": KILL, "value": 1.0, "remove": False}],
    }
    failed = []
    for broker in (await admin.nodes()).brokers:
        try:
            answer = await admin.ask_broker(
                broker, ApiKey.ALTER_CLIENT_QUOTAS, {"entries": [entry], "validate_only": False}
            )
        except BrokerUnavailable as error:
            failed.append(f"broker {broker}: {error}")
            continue
        for result in answer.entries:
            if result.error_code == ErrorCode.INVALID_REQUEST:
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"broker {broker} cannot end sessions")
            raise_error(result)
    if failed:
        raise CommandError(f"sessions of {user} may go on: {'; '.join(failed)}")
    print(f"All brokers have closed the connections of {user}.")
    return OK


if __name__ == "__main__":
    sys.exit(main())

"""``minikafka acls``: list, add and remove access control lists, on any Kafka broker; and ``minikafka
why-denied USER OPERATION RESOURCE``: which ACL decides, or which one is missing.

Kafka: ``kafka-acls.sh`` (``AclCommand``), whose options and texts are the same here, and the part of
``KafkaAdminClient`` that is about ACLs: ``minikafka acls --add --allow-principal User:alice --operation Read
--topic orders`` is ``minikafka acls add --allow-principal …``. Different from Kafka: resources and ACLs are
printed in their order, and ``--json`` prints what programs read.

``why-denied`` is minikafka's own. It asks for the ACLs that have a bearing on the resource (DescribeAcls,
MATCH), takes the decision as a broker would (``security/authorizer_data``), and says what it rests on: the
ACL that denies or allows, with the command that removes it; or that there is none, with the command that adds
it. Super users and ``allow.everyone.if.no.acl.found`` are asked of a broker's configuration.

Exit status: 0 when all went well or there is an explanation, 1 when the broker refused something or cannot be
reached, 2 for bad usage.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from minikafka.cli.shared.admin_client import AdminClient, broker_resource, raise_error
from minikafka.cli.shared.commands import (
    OK,
    ProfileParser,
    add_connection_options,
    as_json,
    run,
    take_connection,
    typed_connection,
    with_action_first,
)
from minikafka.errors import ConfigError, ErrorCode, KafkaError
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.security.acl import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    USER,
    WILDCARD,
    AccessControlEntry,
    AccessControlEntryFilter,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    KafkaPrincipal,
    PatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    by_name,
    camel_case,
    parse_principal,
    parse_super_users,
)
from minikafka.security.authorizer_data import AuthorizerData, Basis, Decision

PROG = "minikafka acls"
ACTIONS = ("add", "remove", "list")
OPERATIONS = tuple(each for each in AclOperation if each > AclOperation.ANY)
RESOURCE_OPTIONS = {
    ResourceType.TOPIC: "--topic",
    ResourceType.GROUP: "--group",
    ResourceType.CLUSTER: "--cluster",
    ResourceType.TRANSACTIONAL_ID: "--transactional-id",
    ResourceType.DELEGATION_TOKEN: "--delegation-token",
    ResourceType.USER: "--user-principal",
}
"""``--cluster`` is the only one without a name."""

CLUSTER = ResourcePatternFilter(ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL)

Entries = set[AccessControlEntry]
Wanted = Mapping[ResourcePatternFilter, Entries]

WHY_DENIED_PROG = "minikafka why-denied"
ANY_HOST = "any host"
"""An address that no client has: only ACLs for all hosts count."""

_SUPER_USERS, _EVERYONE = "super.users", "allow.everyone.if.no.acl.found"


# What a cluster is asked
async def describe_acls(admin: AdminClient, wanted: AclBindingFilter) -> list[AclBinding]:
    """The ACLs that a filter finds, sorted. Raises KafkaError, BrokerUnavailable."""
    answer = await admin.ask_any(ApiKey.DESCRIBE_ACLS, wanted.fields())
    raise_error(answer)
    return sorted(
        AclBinding(
            ResourcePattern.of_codes(resource.resource_type, resource.resource_name, resource.pattern_type),
            AccessControlEntry.of_fields(each),
        )
        for resource in answer.resources
        for each in resource.acls
    )


async def create_acls(admin: AdminClient, bindings: Iterable[AclBinding]) -> None:
    """Raises KafkaError: the first that was refused. BrokerUnavailable."""
    creations = [
        {
            "resource_type": pattern.resource_type,
            "resource_name": pattern.name,
            "resource_pattern_type": pattern.pattern_type,
            **entry._asdict(),
        }
        for pattern, entry in bindings
    ]
    answer = await _ask_controller(admin, ApiKey.CREATE_ACLS, {"creations": creations})
    for result in answer.results:
        raise_error(result)


async def delete_acls(admin: AdminClient, filters: Iterable[AclBindingFilter]) -> int:
    """Returns how many are deleted. Raises KafkaError: the first that was refused. BrokerUnavailable."""
    answer = await _ask_controller(
        admin, ApiKey.DELETE_ACLS, {"filters": [each.fields() for each in filters]}
    )
    deleted = 0
    for result in answer.filter_results:
        raise_error(result)
        for each in result.matching_acls:
            raise_error(each)
            deleted += 1
    return deleted


async def _ask_controller(admin: AdminClient, api_key: ApiKey, body: dict[str, Any]) -> Any:
    """As Kafka's client does. Where there is no controller any broker will do, as before Kafka 3.7."""
    try:
        return await admin.ask_controller(api_key, body)
    except KafkaError as error:
        if error.code is not ErrorCode.NOT_CONTROLLER:
            raise
        return await admin.ask_any(api_key, body)


# The command
def parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka acls``."""
    options = ProfileParser(
        prog=PROG, description="List, add and remove access control lists (ACLs).", allow_abbrev=False
    )
    options.add_argument("action", choices=ACTIONS, help="also as an option: --add, --remove, --list")
    add_connection_options(options)
    _add_resource_options(options)
    _add_entry_options(options)
    options.add_argument(
        "--force", action="store_true", help="remove: assume yes to all queries and do not prompt"
    )
    options.add_argument("--json", action="store_true", help="list: print JSON")
    return options


def _add_resource_options(options: argparse.ArgumentParser) -> None:
    for option, what in {
        "--topic": "topic; * is all topics",
        "--group": "consumer group; * is all groups",
        "--transactional-id": "transactional id; * is all transactional ids",
        "--delegation-token": "delegation token; * is all tokens",
        "--user-principal": "user that tokens are created for or described, like User:alice",
    }.items():
        options.add_argument(option, action="append", default=[], metavar="NAME", help=what)
    options.add_argument("--cluster", action="store_true", help="the cluster")
    options.add_argument(
        "--resource-pattern-type",
        type=str.lower,
        choices=["literal", "prefixed", "any", "match"],
        default="literal",
        help="how names are meant: literal (unless given) or prefixed; in list and remove also any (that "
        "name, either way) or match (all that have a bearing on the resource of that name)",
    )


def _add_entry_options(options: argparse.ArgumentParser) -> None:
    options.add_argument(
        "--operation",
        action="append",
        default=[],
        metavar="OPERATION",
        help="what is allowed or denied, All unless given: "
        + ", ".join(camel_case(each) for each in OPERATIONS),
    )
    for option, what in {
        "--allow-principal": "who is allowed to, like User:alice; User:* is everybody",
        "--deny-principal": "who is denied; this counts more than any that allows",
        "--allow-host": "address that the allowed ones come from; unless given, any",
        "--deny-host": "address that the denied ones come from; unless given, any",
    }.items():
        options.add_argument(option, action="append", default=[], metavar=option[2:].upper(), help=what)
    options.add_argument(
        "--principal", action="append", default=[], metavar="PRINCIPAL", help="list: only those of it"
    )
    options.add_argument(
        "--producer",
        action="store_true",
        help="what a producer needs: Write, Describe and Create on the topics, Write and Describe on the "
        "transactional ids",
    )
    options.add_argument(
        "--consumer",
        action="store_true",
        help="what a consumer needs: Read and Describe on the topics, Read on the groups",
    )
    options.add_argument(
        "--idempotent", action="store_true", help="with --producer: IdempotentWrite on the cluster, too"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run one action. Returns the exit status."""
    options = parser()
    given = list(sys.argv[1:] if argv is None else argv)
    arguments = options.parse_intermixed_args(with_action_first(given, ACTIONS))
    try:
        take_connection(arguments)
        _check_usage(arguments)
        if arguments.action == "list":
            arguments.filters = resource_filters(arguments)
            arguments.principals = sorted(
                {str(parse_principal(each.strip())) for each in arguments.principal}
            )
        else:
            arguments.wanted = wanted_acls(arguments)
    except (ValueError, ConfigError) as error:
        options.error(str(error))
    return run(PROG, _run(arguments))


def _check_usage(arguments: argparse.Namespace) -> None:
    """What ``AclCommandOptions.checkArgs`` refuses. Raises ValueError."""
    given = {name for name, value in vars(arguments).items() if value not in (None, False, [])}
    of_entries = ("allow_principal", "deny_principal", "allow_host", "deny_host", "producer", "consumer")
    for main_option, others in {
        "list": (*of_entries, "operation", "force"),
        "producer": ("operation", "deny_principal", "deny_host"),
        "consumer": ("operation", "deny_principal", "deny_host"),
    }.items():
        for other in others:
            if (arguments.action == main_option or main_option in given) and other in given:
                raise ValueError(f'Option "[{main_option}]" can\'t be used with option "[{_option(other)}]"')
    if "principal" in given and arguments.action != "list":
        raise ValueError("The --principal option is only available if --list is set")
    if "json" in given and arguments.action != "list":
        raise ValueError("The --json option is only available if --list is set")
    if "producer" in given and "topic" not in given:
        raise ValueError("With --producer you must specify a --topic")
    if "idempotent" in given and "producer" not in given:
        raise ValueError("The --idempotent option is only available if --producer is set")
    more_than_a_consumer = "producer" not in given and given & {"cluster", "transactional_id"}
    if "consumer" in given and (not {"topic", "group"} <= given or more_than_a_consumer):
        raise ValueError(
            "With --consumer you must specify a --topic and a --group and no --cluster or --transactional-id "
            "option should be specified."
        )
    if arguments.action == "add" and arguments.resource_pattern_type in ("any", "match"):
        raise ValueError(
            f"A '--resource-pattern-type' value of '{arguments.resource_pattern_type.upper()}' is not valid "
            "when adding acls."
        )


def _option(name: str) -> str:
    return name.replace("_", "-")


# What the options mean
def resource_filters(arguments: argparse.Namespace) -> list[ResourcePatternFilter]:
    """The resources that are named, sorted."""
    pattern_type = PatternType[arguments.resource_pattern_type.upper()]
    filters = {
        ResourcePatternFilter(resource_type, name.strip(), pattern_type)
        for resource_type, option in RESOURCE_OPTIONS.items()
        if resource_type is not ResourceType.CLUSTER
        for name in getattr(arguments, option[2:].replace("-", "_"))
    }
    if pattern_type is PatternType.LITERAL and (arguments.cluster or arguments.idempotent):
        filters.add(CLUSTER)
    return sorted(filters)


def wanted_acls(arguments: argparse.Namespace) -> Wanted:
    """Resource → the ACLs to add or to remove; when removing, none are all of them.

    Raises:
        ValueError: no resource, no principal, or an operation that the resource does not have.
        ConfigError: something that is no principal.
    """
    filters = resource_filters(arguments)
    if not filters:
        raise ValueError(
            "You must provide at least one resource: --topic <topic> or --cluster or --group <group> or "
            "--delegation-token <Delegation Token ID>"
        )
    wanted: dict[ResourcePatternFilter, Entries] = {}
    if arguments.producer:
        _add(wanted, filters, ResourceType.TOPIC, _entries(arguments, ("Write", "Describe", "Create")))
        _add(wanted, filters, ResourceType.TRANSACTIONAL_ID, _entries(arguments, ("Write", "Describe")))
        if arguments.idempotent:
            _add(wanted, [CLUSTER], ResourceType.CLUSTER, _entries(arguments, ("IdempotentWrite",)))
    if arguments.consumer:
        _add(wanted, filters, ResourceType.TOPIC, _entries(arguments, ("Read", "Describe")))
        _add(wanted, filters, ResourceType.GROUP, _entries(arguments, ("Read",)))
    if not (arguments.producer or arguments.consumer):
        entries = _entries(arguments, arguments.operation or ("All",))
        for each in filters:
            _add(wanted, [each], each.resource_type, entries)
    _check_operations(wanted)
    if arguments.action == "add" and not all(wanted.values()):
        raise ValueError(
            "You must specify one of: --allow-principal, --deny-principal when trying to add ACLs."
        )
    return wanted


def _add(
    wanted: dict[ResourcePatternFilter, Entries],
    filters: Iterable[ResourcePatternFilter],
    resource_type: ResourceType,
    entries: Entries,
) -> None:
    for each in filters:
        if each.resource_type is resource_type:
            wanted[each] = wanted.get(each, set()) | entries


def _entries(arguments: argparse.Namespace, operations: Iterable[str]) -> Entries:
    """Those of all principals from all hosts."""
    entries: Entries = set()
    for principals, hosts, permission_type in (
        (arguments.allow_principal, arguments.allow_host, AclPermissionType.ALLOW),
        (arguments.deny_principal, arguments.deny_host, AclPermissionType.DENY),
    ):
        entries |= {
            AccessControlEntry(
                str(parse_principal(principal.strip())),
                host.strip(),
                parse_operation(operation),
                permission_type,
            )
            for principal in principals
            for host in hosts or (WILDCARD,)
            for operation in operations
        }
    return entries


def parse_operation(text: str) -> AclOperation:
    """``Read``, ``READ``. Raises ValueError."""
    operation = by_name(AclOperation, text.strip().replace("-", "_"))
    if operation not in OPERATIONS:
        known = ", ".join(camel_case(each) for each in OPERATIONS)
        raise ValueError(f"there is no operation {text}; there are {known}")
    assert operation is not None
    return operation


def _check_operations(wanted: Wanted) -> None:
    for each, entries in wanted.items():
        valid = SUPPORTED_OPERATIONS[each.resource_type] | {AclOperation.ALL}
        if any(entry.operation not in valid for entry in entries):
            names = ", ".join(operation.name for operation in sorted(valid))
            raise ValueError(f"ResourceType {each.resource_type.name} only supports operations [{names}]")


# What is done
async def _run(arguments: argparse.Namespace) -> int:
    async with AdminClient.of(arguments, "minikafka-acls") as admin:
        match arguments.action:
            case "add":
                await _add_acls(admin, arguments.wanted)
            case "remove":
                await _remove_acls(admin, arguments.wanted, force=arguments.force)
            case _:
                await _list_acls(admin, arguments)
    return OK


async def _add_acls(admin: AdminClient, wanted: Wanted) -> None:
    for (resource_type, name, pattern_type), entries in wanted.items():
        pattern = ResourcePattern(resource_type, name or "", pattern_type)
        filter = AclBindingFilter(ResourcePatternFilter(*pattern))
        existing = set(await describe_acls(admin, filter))
        bindings = [AclBinding(pattern, entry) for entry in sorted(entries)]
        for binding in bindings:
            if binding in existing:
                print(f"Acl {binding} already exists.")
        missing = [each for each in bindings if each not in existing]
        if missing:
            print(f"Adding ACLs for resource `{pattern}`: \n {_lines(each.entry for each in missing)}\n")
            await create_acls(admin, missing)


async def _remove_acls(admin: AdminClient, wanted: Wanted, *, force: bool) -> None:
    for pattern, entries in wanted.items():
        if entries:
            question = (
                f"Are you sure you want to remove ACLs: \n {_lines(sorted(entries))}\n from resource filter "
                f"`{pattern}`? (y/n)"
            )
        else:
            question = f"Are you sure you want to delete all ACLs for resource filter `{pattern}`? (y/n)"
        if force or _is_confirmed(question):
            filters = [AccessControlEntryFilter(*each) for each in sorted(entries)] or [
                AccessControlEntryFilter()
            ]
            await delete_acls(admin, [AclBindingFilter(pattern, each) for each in filters])


def _is_confirmed(question: str) -> bool:
    print(question)
    try:
        return input().strip().lower() == "y"
    except EOFError:
        return False


async def _list_acls(admin: AdminClient, arguments: argparse.Namespace) -> None:
    found: set[AclBinding] = set()
    for pattern in arguments.filters or [ResourcePatternFilter()]:
        found.update(await describe_acls(admin, AclBindingFilter(pattern)))
    if arguments.json:
        wanted = [
            each
            for each in sorted(found)
            if each.entry.principal in arguments.principals or not arguments.principals
        ]
        print(as_json([_as_data(each) for each in wanted]))
    elif not arguments.principals:
        _print_acls(found)
    for principal in () if arguments.json else arguments.principals:
        print(f"ACLs for principal `{principal}`")
        _print_acls(each for each in found if each.entry.principal == principal)


def _print_acls(acls: Iterable[AclBinding]) -> None:
    by_pattern: dict[ResourcePattern, list[AccessControlEntry]] = {}
    for pattern, entry in sorted(acls):
        by_pattern.setdefault(pattern, []).append(entry)
    for pattern, entries in by_pattern.items():
        print(f"Current ACLs for resource `{pattern}`:\n{_lines(entries)}\n")


def _lines(entries: Iterable[AccessControlEntry]) -> str:
    return "\n".join(f"\t{each}" for each in entries)


def _as_data(acl: AclBinding) -> dict[str, str]:
    (resource_type, name, pattern_type), (principal, host, operation, permission_type) = acl
    return {
        "resourceType": resource_type.name,
        "name": name,
        "patternType": pattern_type.name,
        "principal": principal,
        "host": host,
        "operation": operation.name,
        "permissionType": permission_type.name,
    }


# Why someone is denied


def why_denied_parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka why-denied``."""
    options = ProfileParser(
        prog=WHY_DENIED_PROG,
        description="Say which ACL decides whether a user may do something, or which one is missing.",
        epilog="RESOURCE: topic:NAME, group:NAME, cluster, transactional-id:NAME, delegation-token:ID, "
        "user:User:NAME.",
        allow_abbrev=False,
    )
    options.add_argument("user", metavar="USER", help="alice, or User:alice")
    options.add_argument("operation", metavar="OPERATION", help="Read, Write, Describe, …")
    options.add_argument("resource", metavar="RESOURCE", help="like topic:orders")
    add_connection_options(options)
    options.add_argument(
        "--host", metavar="ADDRESS", help="where the client connects from; unless given, any"
    )
    return options


def why_denied(argv: Sequence[str] | None = None) -> int:
    """Explain. Returns the exit status."""
    options = why_denied_parser()
    arguments = options.parse_args(argv)
    try:
        take_connection(arguments)
        if not arguments.user.rpartition(":")[2]:
            raise ValueError("USER has no name: give alice, or User:alice")
        arguments.principal = parse_user(arguments.user)
        arguments.operation = parse_operation(arguments.operation)
        arguments.resource = parse_resource(arguments.resource)
        check_operation(arguments.operation, arguments.resource)
    except (ValueError, ConfigError) as error:
        options.error(str(error))
    return run(WHY_DENIED_PROG, _explain(arguments))


def parse_user(text: str) -> KafkaPrincipal:
    """``alice`` is ``User:alice``. Raises ConfigError."""
    return parse_principal(text) if ":" in text else KafkaPrincipal(USER, text)


def parse_resource(text: str) -> ResourcePattern:
    """``topic:orders``, ``cluster``. Raises ValueError."""
    kind, _, name = text.partition(":")
    resource_type = by_name(ResourceType, kind.replace("-", "_"))
    if resource_type is ResourceType.CLUSTER and name in ("", CLUSTER_NAME):
        return ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME)
    if resource_type not in SUPPORTED_OPERATIONS or not name:
        known = ", ".join(
            f"{option[2:]}:NAME" for option in RESOURCE_OPTIONS.values() if option != "--cluster"
        )
        raise ValueError(f"{text}: must be cluster, or one of {known}".replace("user-principal", "user"))
    assert resource_type is not None
    return ResourcePattern(resource_type, name)


def check_operation(operation: AclOperation, resource: ResourcePattern) -> None:
    """Raises ValueError: no request ever asks for that."""
    known = SUPPORTED_OPERATIONS[resource.resource_type]
    if operation not in known:
        names = ", ".join(camel_case(each) for each in sorted(known))
        kind = camel_case(resource.resource_type)
        raise ValueError(f"no request needs {camel_case(operation)} on a {kind}; there are {names}")


async def _explain(arguments: argparse.Namespace) -> int:
    resource: ResourcePattern = arguments.resource
    wanted = AclBindingFilter(ResourcePatternFilter(resource.resource_type, resource.name, PatternType.MATCH))
    async with AdminClient.of(arguments, "minikafka-why-denied") as admin:
        try:
            acls = await describe_acls(admin, wanted)
        except KafkaError as error:
            if error.code is not ErrorCode.SECURITY_DISABLED:
                raise
            print("Everybody may do everything: the brokers have no authorizer (authorizer.class.name).")
            return OK
        configured = await _configured(admin)
    question = Question(
        arguments.principal,
        arguments.operation,
        resource,
        connection=typed_connection(arguments),
    )
    print("\n".join(question.explain(acls, configured, host=arguments.host)))
    return OK


async def _configured(admin: AdminClient) -> dict[str, str] | None:
    """What a broker's configuration says of super users and of what no ACL speaks of; None: we may not
    know."""
    broker = next(iter((await admin.nodes()).brokers), None)
    if broker is None:
        return None
    resource, names = broker_resource(broker), [_SUPER_USERS, _EVERYONE]
    found = (await admin.configs([resource], names, node_id=broker)).get(resource, {})
    known = {name: found[name].value for name in names if name in found}
    # Apache Kafka hides what belongs to its authorizers.
    shown = {name: value for name, value in known.items() if value is not None}
    return shown if len(shown) == len(names) else None


class Question:
    """Whether a principal may perform an operation."""

    def __init__(
        self,
        principal: KafkaPrincipal,
        operation: AclOperation,
        resource: ResourcePattern,
        *,
        connection: str = "",
    ) -> None:
        """``connection``: options for the commands that are proposed."""
        self._principal = principal
        self._operation = operation
        self._resource = resource
        self._connection = connection

    def explain(
        self, acls: Sequence[AclBinding], configured: dict[str, str] | None, *, host: str | None
    ) -> list[str]:
        """The answer's lines. ``acls`` are those with a bearing on the resource; ``configured`` None: it is
        not known. Without a ``host`` it is about all, and what is different from some is said."""
        decision = self._decide(acls, configured, host or ANY_HOST)
        lines = self._told(decision, acls, configured, host)
        if host is None and decision.basis is not Basis.SUPER_USER:
            special = sorted({each.entry.host for each in acls} - {WILDCARD})
            for each in special:
                other = self._decide(acls, configured, each)
                if other.is_allowed != decision.is_allowed:
                    said = "allowed" if other.is_allowed else "denied"
                    lines.append(f"From {each} it is {said}, by {other.binding}.")
        if configured is None:
            lines.append(
                f"The brokers' {_SUPER_USERS} and {_EVERYONE} may say something else; that needs "
                "DescribeConfigs on the cluster."
            )
        return lines

    def _decide(self, acls: Sequence[AclBinding], configured: dict[str, str] | None, host: str) -> Decision:
        settings = configured or {}
        data = AuthorizerData(
            parse_super_users(settings.get(_SUPER_USERS, "")),
            allows_everyone_if_no_acl_found=settings.get(_EVERYONE) == "true",
        )
        for pattern in {each.pattern for each in acls}:
            data.replace(pattern, [each.entry for each in acls if each.pattern == pattern])
        kind, name, _ = self._resource
        return data.decide(str(self._principal), host, self._operation, kind, name)

    def _told(
        self,
        decision: Decision,
        acls: Sequence[AclBinding],
        configured: dict[str, str] | None,
        host: str | None,
    ) -> list[str]:
        may = "may" if decision.is_allowed else "may not"
        kind, name, _ = self._resource
        what = "the cluster" if kind is ResourceType.CLUSTER else f"{camel_case(kind)} {name}"
        where = "" if host is None else f" from {host}"
        said = f"{self._principal} {may} {camel_case(self._operation)} {what}{where}"
        match decision.basis:
            case Basis.SUPER_USER:
                return [f"{said}: a super user ({_SUPER_USERS}) may do anything."]
            case Basis.NO_ACL_FOUND:
                return [f"{said}: no ACL speaks of it, and {_EVERYONE} is true."]
            case Basis.DEFAULT:
                missing = AclBinding(
                    self._resource,
                    AccessControlEntry(
                        str(self._principal), host or WILDCARD, self._operation, AclPermissionType.ALLOW
                    ),
                )
                return [f"{said}: no ACL allows it. This adds one:", self._command("--add", missing)]
        binding = decision.binding
        assert binding is not None
        if decision.is_allowed:
            return [f"{said}, because an ACL allows it:", f"    {binding}"]
        lines = [
            f"{said}, because an ACL denies it:",
            f"    {binding}",
            "This removes it:",
            self._command("--remove", binding),
        ]
        remaining = [each for each in acls if each.entry.permission_type is not AclPermissionType.DENY]
        if self._decide(remaining, configured, host or ANY_HOST).basis is Basis.DEFAULT:
            lines.append("Even then no ACL would allow it. Ask again when it is removed.")
        return lines

    def _command(self, action: str, acl: AclBinding) -> str:
        """The command of ``minikafka acls`` that adds or removes exactly this one."""
        (kind, name, pattern_type), (principal, host, operation, permission_type) = acl
        verb = permission_type.name.lower()
        words = ["minikafka", "acls", action, f"--{verb}-principal", principal]
        if host != WILDCARD:
            words += [f"--{verb}-host", host]
        words += ["--operation", camel_case(operation), RESOURCE_OPTIONS[kind]]
        if kind is not ResourceType.CLUSTER:
            words.append(name)
        if pattern_type is PatternType.PREFIXED:
            words += ["--resource-pattern-type", "prefixed"]
        return f"    {shlex.join(words)}{self._connection}"


if __name__ == "__main__":
    sys.exit(main())

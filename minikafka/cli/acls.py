"""``minikafka acls``: list, add and remove access control lists, on any Kafka broker.

Kafka: ``kafka-acls.sh`` (``AclCommand``), whose options and texts are the same here, and the part of
``KafkaAdminClient`` that is about ACLs: ``minikafka acls --add --allow-principal User:alice --operation Read
--topic orders`` is ``minikafka acls add --allow-principal …``. Different from Kafka: resources and ACLs are
printed in their order, and ``--json`` prints what programs read.

Exit status: 0 when all went well, 1 when the broker refused something or cannot be reached, 2 for bad usage.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from minikafka.cli.shared.admin_client import AdminClient, raise_error
from minikafka.cli.shared.commands import (
    OK,
    ProfileParser,
    add_connection_options,
    as_json,
    run,
    take_connection,
    with_action_first,
)
from minikafka.errors import ConfigError, ErrorCode, KafkaError
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.security.acl import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    WILDCARD,
    AccessControlEntry,
    AccessControlEntryFilter,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    by_name,
    camel_case,
    parse_principal,
)

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


if __name__ == "__main__":
    sys.exit(main())

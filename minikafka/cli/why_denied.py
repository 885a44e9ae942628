"""``minikafka why-denied USER OPERATION RESOURCE``: which ACL decides, or which one is missing.

Minikafka's own. It asks for the ACLs that have a bearing on the resource (DescribeAcls, MATCH), takes the
decision as a broker would (``security/authorizer_data``), and says what it rests on: the ACL that denies or
allows, with the command that removes it; or that there is none, with the command that adds it. Super users
and ``allow.everyone.if.no.acl.found`` are asked of a broker's configuration.

Exit status: 0 when there is an explanation, 1 when a broker refused or cannot be reached, 2 for bad usage.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence

from minikafka.cli.acls import RESOURCE_OPTIONS, describe_acls, parse_operation
from minikafka.cli.shared.admin_client import AdminClient, broker_resource
from minikafka.cli.shared.commands import (
    OK,
    ProfileParser,
    add_connection_options,
    run,
    take_connection,
    typed_connection,
)
from minikafka.errors import ConfigError, ErrorCode, KafkaError
from minikafka.security.acl import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    USER,
    WILDCARD,
    AccessControlEntry,
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

PROG = "minikafka why-denied"
ANY_HOST = "any host"
"""An address that no client has: only ACLs for all hosts count."""

_SUPER_USERS, _EVERYONE = "super.users", "allow.everyone.if.no.acl.found"


def parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka why-denied``."""
    options = ProfileParser(
        prog=PROG,
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


def main(argv: Sequence[str] | None = None) -> int:
    """Explain. Returns the exit status."""
    options = parser()
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
    return run(PROG, _run(arguments))


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


async def _run(arguments: argparse.Namespace) -> int:
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

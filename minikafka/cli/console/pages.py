"""The console's pages by their paths, who may ask for which, and what a console is made of; with
``api/access``: ACLs, users with passwords (SCRAM), and quotas.

A page that changes something takes POST, from a reader who has authenticated, where ``http.admin`` is true. A
browser sends passwords and certificates along with whatever another site has it send, so such a request must
also come from our own page: its content type is one that no form can send, and Origin and Sec-Fetch-Site say
the same origin, which browsers set.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from minikafka.cli.acls import describe_acls
from minikafka.cli.console.cluster import KEEP_S, ClusterView, Connection, cluster
from minikafka.cli.console.decoding import Registry
from minikafka.cli.console.exchange import (
    Query,
    Refusal,
    Shared,
    SharedByQuery,
    json_response,
    refusal_response,
    why_not,
)
from minikafka.cli.console.groups import GroupsView
from minikafka.cli.console.messages import MessagesView
from minikafka.cli.console.topics import ReassignmentsView, TopicsView, topic
from minikafka.cli.console.why import WhyView, events, purgatory
from minikafka.cli.quotas import entity_text
from minikafka.cli.shared.admin_client import raise_error
from minikafka.cli.shared.credentials import describe_users
from minikafka.clock import Clock
from minikafka.config.broker import BrokerConfig
from minikafka.config.listeners import is_loopback
from minikafka.errors import KafkaError, MinikafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.security.acl import AclBinding, AclBindingFilter, camel_case
from minikafka.server.http.pages import CONSOLE_PREFIX, ConsoleHost
from minikafka.server.http.server import HttpRequest, HttpResponse
from minikafka.system_clock import SystemClock

logger = logging.getLogger(__name__)

JSON_TYPE: Final = "application/json"

Ask = Callable[[Query], Awaitable[Any]]
Change = Callable[[bytes], Awaitable[Any]]

NOT_AUTHENTICATED: Final = "changes are for readers who have authenticated"

ROWS_MAX: Final = 1_000


class Permissions(NamedTuple):
    """What the console is set to show and do; a text is why it does not."""

    messages: bool | str
    change: bool | str
    access: bool | str = True
    """ACLs, users and quotas; who has authenticated always sees them."""


class Console:
    """The API. Call it with a request; ``close`` it."""

    def __init__(
        self,
        connection: Connection,
        *,
        clock: Clock,
        permissions: Permissions,
        registry: Registry | None = None,
        asked_of: int | None = None,
        options: str = "",
    ) -> None:
        """``asked_of``: the broker that it is in; None: it stands beside the cluster. ``options``: how the
        command line reaches the cluster, for commands that are proposed."""
        self._view = ClusterView(connection, clock)
        self._permissions = permissions
        self._has_registry = registry is not None
        self._groups = GroupsView(self._view)
        self._messages = MessagesView(self._view, registry)
        self._cluster = Shared(lambda: cluster(self._view, asked_of=asked_of), keep_s=KEEP_S)
        names = ("filter", "limit", "sort")
        self._topics = SharedByQuery(TopicsView(self._view).topics, names=names, keep_s=KEEP_S)
        self._group_list = SharedByQuery(self._groups.groups, names=names, keep_s=KEEP_S)
        self._reassignments = ReassignmentsView(self._view)
        self._why = WhyView(connection, clock, options=options)
        self._asks: dict[str, Ask] = {
            "topics": self._topics.get,
            "topic": lambda query: topic(self._view, self._groups, query),
            "messages": self._show_messages,
            "groups": self._group_list.get,
            "group": self._groups.group,
            "reassignments": lambda query: self._reassignments.reassignments(),
            "events": lambda query: events(self._view, query),
            "purgatory": lambda query: purgatory(self._view, query),
            "why": self._why.why,
        }
        self._changes: dict[str, Change] = {
            "group/reset": self._groups.reset,
            "reassignments/cancel": self._reassignments.cancel,
        }

    def __repr__(self) -> str:
        return f"Console({self._view})"

    async def begin(self) -> None:
        """Reach the cluster now, which otherwise is done when it is first asked. Raises BrokerUnavailable."""
        await self._view.admin.nodes()

    async def close(self) -> None:
        self._messages.close()
        await self._groups.close()
        await self._view.close()

    async def __call__(self, request: HttpRequest) -> HttpResponse:
        name = request.path.removeprefix(CONSOLE_PREFIX)
        try:
            return json_response(await self._answer(name, request))
        except MinikafkaError as error:
            return refusal_response(error)

    async def _answer(self, name: str, request: HttpRequest) -> Any:
        if name in self._changes:
            if request.method != "POST":
                raise Refusal(405, f"{name} takes POST")
            check_change(request, self._permissions.change)
            logger.info("a reader of the HTTP port asks for %s: %s", name, (request.body or b"")[:1000])
            return await self._changes[name](request.body or b"")
        if request.method == "POST":
            raise Refusal(405, f"{name[:100]} does not take POST")
        if name == "cluster":
            return {**await self._cluster.get(), "can": self._can(request)}
        if name == "access":
            is_shown = request.is_authenticated or self._permissions.access is True
            return await access(self._view) if is_shown else no_access(str(self._permissions.access))
        if name not in self._asks:
            there = ", ".join(sorted((*self._asks, *self._changes, "cluster", "access")))
            raise Refusal(404, f"there is no api/{name[:100]}; there are {there}")
        return await self._asks[name](Query(request.query))

    def _can(self, request: HttpRequest) -> dict[str, bool | str]:
        change = self._permissions.change
        if change is True and not request.is_authenticated:
            change = NOT_AUTHENTICATED
        registry = True if self._has_registry else "no registry is configured (http.registry.url)"
        return {"messages": self._permissions.messages, "change": change, "registry": registry}

    async def _show_messages(self, query: Query) -> Any:
        if self._permissions.messages is not True:
            raise Refusal(403, str(self._permissions.messages))
        return await self._messages.messages(query)


def check_change(request: HttpRequest, permission: bool | str) -> None:
    """Raises Refusal: the request may not change anything, and why."""
    if permission is not True:
        raise Refusal(403, str(permission))
    if not request.is_authenticated:
        raise Refusal(403, NOT_AUTHENTICATED)
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != JSON_TYPE:
        raise Refusal(403, f"the content type must be {JSON_TYPE}")
    site = request.headers.get("sec-fetch-site")
    if site not in (None, "same-origin"):
        raise Refusal(403, f"it comes from another site ({site[:100]})")
    origin = request.headers.get("origin")
    if origin is not None and not _is_same(origin, request.headers.get("host", "")):
        raise Refusal(403, f"it comes from {origin[:200]}, which is not this page")


def _is_same(origin: str, host: str) -> bool:
    try:
        url = urlsplit(origin)
    except ValueError:
        return False
    return bool(host) and url.scheme in ("http", "https") and url.netloc.lower() == host.lower()


def permissions_of(config: BrokerConfig) -> Permissions:
    """As ``http.messages`` and ``http.admin`` say."""
    why = _guard(config)
    messages: bool | str = True
    if config.http_messages is None:
        messages = True if why is None else f"{why}, and http.messages is not true"
    elif not config.http_messages:
        messages = "http.messages is false"
    change: bool | str = True if config.http_admin else "http.admin is not true"
    return Permissions(messages, change, True if why is None else f"{why}; readers of this page must, too")


def _guard(config: BrokerConfig) -> str | None:
    """What keeps clients from reading messages that readers of the HTTP port would get; None: nothing."""
    if config.has_authorizer:
        return "clients need to be authorized"
    for each in config.endpoints():
        wants = config.listener_security(each.name).ssl_client_auth if each.protocol == "SSL" else "none"
        if each.protocol.startswith("SASL") or wants != "none":
            return f"clients authenticate on listener {each.name}"
    has_readers = config.http_bearer_token or config.http_basic_auth_users
    if not is_loopback(config.http_host) and not has_readers and config.http_ssl_client_auth != "required":
        return "the HTTP port answers other machines without authentication"
    return None


def console_of_broker(host: ConsoleHost) -> Console:
    """The one on a broker's HTTP port: it asks the cluster as the broker does."""
    config = host.config()
    url, user_info = config.registry_url(), config.http_registry_basic_auth_user_info
    return Console(
        Connection([host.address], connect=host.connect),
        clock=SystemClock(),
        permissions=permissions_of(config),
        registry=None if url is None else Registry(url, user_info),
        asked_of=host.node_id,
    )


async def access(view: ClusterView) -> dict[str, Any]:
    """What is not known is null, and why is beside it."""
    acls, users, quotas = await asyncio.gather(_acls(view), _users(view), _quotas(view))
    return {
        "acls": None if isinstance(acls, str) else acls[:ROWS_MAX],
        "acls_left_out": 0 if isinstance(acls, str) else max(0, len(acls) - ROWS_MAX),
        "why_no_acls": acls if isinstance(acls, str) else None,
        "users": None if isinstance(users, str) else users[:ROWS_MAX],
        "users_left_out": 0 if isinstance(users, str) else max(0, len(users) - ROWS_MAX),
        "why_no_users": users if isinstance(users, str) else None,
        "quotas": None if isinstance(quotas, str) else quotas[:ROWS_MAX],
        "quotas_left_out": 0 if isinstance(quotas, str) else max(0, len(quotas) - ROWS_MAX),
        "why_no_quotas": quotas if isinstance(quotas, str) else None,
    }


def no_access(why: str) -> dict[str, Any]:
    """The same for who may not see it."""
    names = ("acls", "users", "quotas")
    return {
        **dict.fromkeys(names),
        **{f"{name}_left_out": 0 for name in names},
        **{f"why_no_{name}": why for name in names},
    }


async def _acls(view: ClusterView) -> list[dict[str, Any]] | str:
    try:
        found = await describe_acls(view.admin, AclBindingFilter())
    except (KafkaError, BrokerUnavailable) as error:
        return why_not(error)
    return [_acl(each) for each in found]


def _acl(binding: AclBinding) -> dict[str, Any]:
    pattern, entry = binding
    return {
        "principal": entry.principal,
        "host": entry.host,
        "operation": camel_case(entry.operation),
        "resource_type": camel_case(pattern.resource_type),
        "pattern_type": camel_case(pattern.pattern_type),
        "name": pattern.name,
        "permission": camel_case(entry.permission_type),
    }


async def _users(view: ClusterView) -> list[dict[str, Any]] | str:
    try:
        found = await describe_users(view.admin)
    except (KafkaError, BrokerUnavailable) as error:
        return why_not(error)
    return [
        {"name": name, "mechanisms": [each.mechanism_name for each in sorted(mechanisms)]}
        for name, mechanisms in found.items()
    ]


async def _quotas(view: ClusterView) -> list[dict[str, Any]] | str:
    try:
        answer = await view.admin.ask_any(ApiKey.DESCRIBE_CLIENT_QUOTAS, {"components": [], "strict": False})
        raise_error(answer)
    except (KafkaError, BrokerUnavailable) as error:
        return why_not(error)
    return sorted(
        (
            {
                "entity": entity_text({part.entity_type: part.entity_name for part in entry.entity}),
                "quota": value.key,
                "value": value.value,
            }
            for entry in answer.entries or ()
            for value in entry.values
        ),
        key=lambda each: (each["entity"], each["quota"]),
    )

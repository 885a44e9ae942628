"""The authorizer: decides by the ACLs in the store, logs what it decides, counts.

Kafka: ``AclAuthorizer``, ``StandardAuthorizer`` with ``AuthorizerMetrics``. The rules are in
``security/authorizer_data``, the ACLs come from ``AclStore``.

The log ``kafka.authorizer.logger`` has a line for each decision, denials at INFO, others at DEBUG, with the
fields of ``StandardAuthorizerData``. What only finds out which operations are authorised is not logged; Kafka
does that at TRACE, which Python does not have.

Decisions are not cached: one takes about as long as a look-up of its five parts in a cache would. So there is
nothing here that could hold after its ACL has gone.

**The ACLs in the store** (``AclStore``): read, changed, and kept in memory as the other brokers change them.
Kafka: the part of ``AclAuthorizer`` (3.9) that ZooKeeper is for, ``ZkAclStore``, ``ZkAclChangeStore``. The
nodes, their JSON and the notifications are Kafka's (``coordination/paths``), so brokers of both kinds on one
ZooKeeper have the same ACLs.

A node holds all ACLs of one pattern and goes with its last one. It is read, changed and written on condition
that no other broker wrote in between, together with the notification: there is no change that others do not
hear of. Kafka writes the notification afterwards. ``AuthorizerData`` is given what a node holds as a whole,
under a lock, so that what was read earlier never replaces what was read later.

After a session of the store has expired everything is read again: notifications are kept for 15 minutes only.
Kafka looks at those that are left.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import chain, islice

from minikafka.clock import Clock
from minikafka.config.broker import BrokerConfig
from minikafka.coordination import paths
from minikafka.coordination.store import (
    DATA_BYTES_MAX,
    MULTI_BYTES_MAX,
    BadVersionError,
    CoordinationStore,
    CreateOp,
    DeleteOp,
    InvalidNodeError,
    Node,
    NodeExistsError,
    NoNodeError,
    Op,
    SetOp,
    StoreError,
    op_bytes,
    parent_of,
)
from minikafka.errors import ConfigError, ErrorCode, KafkaError
from minikafka.metrics.broker_stats import AuthorizerMetrics, RefusedKind
from minikafka.named_tuple import NamedTuple
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.security.acl import (
    AUDIT_LOGGER,
    SUPPORTED_OPERATIONS,
    USER,
    AccessControlEntry,
    AclBinding,
    AclBindingFilter,
    AclFilters,
    AclOperation,
    ResourcePattern,
    ResourceType,
    by_name,
    camel_case,
    parse_super_users,
)
from minikafka.security.authorizer_data import AuthorizerData, Decision
from minikafka.server.cluster.coordination_store import (
    RETRY_PAUSE_MS,
    ChangeNotifications,
    gather_some,
    mapped_store_failures,
)
from minikafka.server.runtime.work_scheduler import TimeSlice
from minikafka.server.security.authorizer import Asker
from minikafka.steps import Steps

logger = logging.getLogger(__name__)
audit_logger = logging.getLogger(AUDIT_LOGGER)

UPDATE_RETRIES_MAX = 10
"""``AclAuthorizer.maxUpdateRetries``: lost races for one node before a change gives up."""

UPDATE_RETRY_BACKOFF_MS = 100
"""``AclAuthorizer.retryBackoffMs``."""

PATTERNS_AT_ONCE = 64
"""Whose ACLs are written together: a write to disk takes as long for one. Other changes wait meanwhile."""

ACLS_OF_A_PATTERN_MAX = DATA_BYTES_MAX // 70
"""More do not fit into a node, where one is at least that long. The node's own bound comes before most often:
this one keeps a request from making the JSON of a million."""

Entries = frozenset[AccessControlEntry]
Change = Callable[[Entries], Awaitable[Entries]]
"""The ACLs of a pattern → what they are to be. Called again when another broker was faster."""

CLASS_NAMES = (
    "kafka.security.authorizer.AclAuthorizer",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
)
"""Of ``authorizer.class.name``; one authorizer, which does as both do."""


class Deletion(NamedTuple):
    """An ACL that a filter found, and why it could not be deleted; None: it is."""

    binding: AclBinding
    error: KafkaError | None


class AclStore:
    """``load`` before clients are served, then ``run`` as a task."""

    def __init__(self, store: CoordinationStore, data: AuthorizerData, *, clock: Clock) -> None:
        self.clock = clock
        self._store = store
        self._data = data
        self._lock = asyncio.Lock()
        self._followers: list[Callable[[], None]] = []
        self._new_session = asyncio.Event()
        self._notifications = [
            ChangeNotifications(store, directory, clock=clock, what="changes of ACLs", apply=self._reload)
            for directory in paths.ACL_CHANGES.values()
        ]

    def __repr__(self) -> str:
        return f"AclStore({self._data!r})"

    @property
    def count(self) -> int:
        """ACLs that there are (``acls-total-count``)."""
        return self._data.acl_count

    def follow(self, changed: Callable[[], None]) -> None:
        """``changed`` is called after every change of the ACLs."""
        self._followers.append(changed)

    # What there is

    def matching(self, wanted: AclBindingFilter) -> Steps[list[AclBinding]]:
        """The ACLs that a filter finds, as this broker knows them."""
        return self._data.matching(wanted)

    async def load(self) -> None:
        """Read everything; what is not in the store any more is forgotten. May be called again.

        Raises:
            StoreError: DamagedNodeError for ACLs that cannot be read. Without them it is unknown what is
                denied.
        """
        for each in self._notifications:
            await each.begin()
        for resource_type, pattern_type in (
            (kind, pattern_type) for pattern_type in paths.ACL_ROOTS for kind in SUPPORTED_OPERATIONS
        ):
            await self._store.ensure_path(paths.acl_type_path(resource_type, pattern_type))
        await self._load_all()
        logger.info("%d ACLs are loaded", self._data.acl_count)

    async def _load_all(self) -> None:
        async with self._lock:
            patterns = await self._stored_patterns()
            stored = await gather_some(self._read(pattern) for pattern in patterns)
            found = dict(zip(patterns, stored, strict=True))
            time_slice = TimeSlice()
            changes = [
                (pattern, entries)
                for pattern in dict.fromkeys(chain(self._data.patterns, patterns))
                if (entries := found.get(pattern, frozenset())) != self._data.of_pattern(pattern)
            ]
            for pattern, entries in changes:
                self._put(pattern, entries)
                await time_slice.give_way()

    async def _stored_patterns(self) -> list[ResourcePattern]:
        patterns = []
        for pattern_type, root in paths.ACL_ROOTS.items():
            for name in await self._store.children(root):
                resource_type = by_name(ResourceType, name)
                if resource_type not in SUPPORTED_OPERATIONS:
                    logger.warning("ACLs of an unknown type of resource are ignored: %s/%s", root, name)
                    continue
                assert resource_type is not None
                patterns += [
                    ResourcePattern(resource_type, each, pattern_type)
                    for each in await self._store.children(f"{root}/{name}")
                ]
        return patterns

    async def _read(self, pattern: ResourcePattern) -> Entries:
        path = paths.acl_path(pattern)
        try:
            return paths.decode_acls((await self._store.get(path)).data, path)
        except NoNodeError:
            return frozenset()

    def _put(self, pattern: ResourcePattern, entries: Entries) -> None:
        if self._data.replace(pattern, entries):
            for changed in self._followers:
                changed()

    # What others change

    async def session_began(self) -> None:
        """Watches went with the old session, and notifications may have."""
        self._new_session.set()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for each in self._notifications:
                tasks.create_task(each.run())
            tasks.create_task(self._load_in_new_sessions())

    async def _load_in_new_sessions(self) -> None:
        while True:
            await self._new_session.wait()
            self._new_session.clear()
            for each in self._notifications:
                each.look_again()
            try:
                await self._load_all()
            except paths.DamagedNodeError as error:
                logger.error("%s; the ACLs are those of before until that is repaired", error)
            except StoreError as error:
                logger.warning("the ACLs wait for the coordination store: %s", error)
                await asyncio.sleep(RETRY_PAUSE_MS / 1000)
                self._new_session.set()

    async def _reload(self, path: str, data: bytes) -> None:
        """What one notification speaks of. Raises StoreError."""
        pattern = paths.decode_acl_change(data, path)
        async with self._lock:
            self._put(pattern, await self._read(pattern))

    # What clients change

    async def create(self, bindings: Sequence[AclBinding]) -> list[KafkaError | None]:
        """Add ACLs; those that are there already are no error. Returns what is wrong with each, in order."""
        time_slice = TimeSlice()
        by_pattern: dict[ResourcePattern, set[AccessControlEntry]] = {}
        for pattern, entry in bindings:
            by_pattern.setdefault(pattern, set()).add(entry)
            await time_slice.give_way()

        def adding(new: set[AccessControlEntry]) -> Change:
            async def with_new(old: Entries) -> Entries:
                return old | new

            return with_new

        failed = await self._update_all({pattern: adding(new) for pattern, new in by_pattern.items()})
        return [failed.get(pattern) for pattern, _ in bindings]

    async def delete(self, filters: Sequence[AclBindingFilter]) -> list[list[Deletion] | KafkaError]:
        """Remove the ACLs that filters find. Returns for each filter what it found; what several find belongs
        to the first of them, as in ``AclAuthorizer``: the answer is never more than all ACLs. A filter that
        could not be held against all ACLs has an error: had it found nothing, a revocation would seem done.

        Patterns that a filter names are looked up in the store even if this broker has not heard of them yet;
        of the others only those of which it knows an ACL that is found.
        """
        found: list[list[Deletion]] = [[] for _ in filters]
        wanted = AclFilters()
        patterns: dict[ResourcePattern, None] = {}
        is_searching = False
        time_slice = TimeSlice()
        for each in filters:
            await time_slice.give_way()
            wanted.add(each)
            exact = each.pattern.exact()
            patterns.update(dict.fromkeys(exact))
            is_searching = is_searching or not exact
        for pattern in self._data.patterns if is_searching else ():
            for entry in self._data.of_pattern(pattern):
                await time_slice.give_way()
                if wanted.first(pattern, entry) is not None:
                    patterns[pattern] = None
                    break
        deleted: dict[ResourcePattern, dict[AccessControlEntry, int]] = {}
        """→ the place of the first filter that found it."""

        def without_wanted(pattern: ResourcePattern) -> Change:
            async def without(entries: Entries) -> Entries:
                gone = deleted[pattern] = {}  # not of an attempt that another broker's change has overtaken
                time_slice = TimeSlice()
                for entry in entries:
                    await time_slice.give_way()
                    first = wanted.first(pattern, entry)
                    if first is not None:
                        gone[entry] = first
                return entries - gone.keys()

            return without

        failed = await self._update_all({pattern: without_wanted(pattern) for pattern in patterns})
        for pattern, gone in deleted.items():
            for entry, at in gone.items():
                await time_slice.give_way()
                found[at].append(Deletion(AclBinding(pattern, entry), failed.get(pattern)))
        unread = {
            pattern: error
            for pattern, error in failed.items()
            # A name that the store cannot have has no ACLs.
            if pattern not in deleted and error.code is not ErrorCode.INVALID_REQUEST
        }
        return [
            _why_not_searched(each, unread) or of_filter
            for each, of_filter in zip(filters, found, strict=True)
        ]

    async def _update_all(
        self, changes: Mapping[ResourcePattern, Change]
    ) -> dict[ResourcePattern, KafkaError]:
        """Replace the ACLs of each pattern by what its change makes of them; what failed, and why.

        Several are written at once. Where that does not succeed, as when another broker was faster with one
        of them, they are written one by one: the answer is that of each alone.
        """
        failed: dict[ResourcePattern, KafkaError] = {}
        left = iter(changes.items())
        while some := dict(islice(left, PATTERNS_AT_ONCE)):
            if len(some) > 1 and await self._try_to_update_together(some):
                continue
            for pattern, change in some.items():
                try:
                    await self._update(pattern, change)
                except KafkaError as error:
                    failed[pattern] = error
        return failed

    async def _try_to_update_together(self, changes: Mapping[ResourcePattern, Change]) -> bool:
        """Whether all of them are done; else none is."""
        time_slice = TimeSlice()
        async with self._lock:
            try:
                nodes = await gather_some(self._node(pattern) for pattern in changes)
                writes: list[Op] = []
                after: dict[ResourcePattern, Entries] = {}
                for (pattern, change), node in zip(changes.items(), nodes, strict=True):
                    await time_slice.give_way()
                    path = paths.acl_path(pattern)
                    old = frozenset() if node is None else paths.decode_acls(node.data, path)
                    after[pattern] = new = await change(old)
                    if len(new) > ACLS_OF_A_PATTERN_MAX:
                        return False
                    writes += _writes(pattern, node, old, new)
                if sum(map(op_bytes, writes)) > MULTI_BYTES_MAX:
                    return False
                if writes:
                    await self._store.multi(writes)
            except StoreError:  # each alone is answered with what is wrong with it
                return False
            if writes:
                logger.info("the ACLs of %d resource patterns are changed", len(after))
            for pattern, entries in after.items():
                self._put(pattern, entries)
                await time_slice.give_way()
            return True

    async def _node(self, pattern: ResourcePattern) -> Node | None:
        try:
            return await self._store.get(paths.acl_path(pattern))
        except NoNodeError:
            return None

    async def _update(self, pattern: ResourcePattern, change: Change) -> None:
        """Replace the ACLs of a pattern by what ``change`` makes of them.

        Raises:
            KafkaError: INVALID_REQUEST for more ACLs than a node holds, or a name that is none in the store;
                REQUEST_TIMED_OUT when others were faster too often, or the store is away.
        """
        path = paths.acl_path(pattern)
        with mapped_store_failures(f"changing the ACLs of {pattern}"):
            for attempt in range(UPDATE_RETRIES_MAX + 1):
                if attempt:
                    await asyncio.sleep(UPDATE_RETRY_BACKOFF_MS / 1000)
                async with self._lock:
                    if await self._try_to_update(path, pattern, change):
                        return
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"Failed to update ACLs for {pattern} after trying a maximum of {UPDATE_RETRIES_MAX} times",
        )

    async def _try_to_update(self, path: str, pattern: ResourcePattern, change: Change) -> bool:
        try:
            node = await self._node(pattern)
        except InvalidNodeError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{pattern}: {error}") from None
        old = frozenset() if node is None else paths.decode_acls(node.data, path)
        new = await change(old)
        if len(new) > ACLS_OF_A_PATTERN_MAX:
            raise _too_many(pattern, len(new))
        if writes := _writes(pattern, node, old, new):
            try:
                await self._store.multi(writes)
            except InvalidNodeError:
                raise _too_many(pattern, len(new)) from None
            except (BadVersionError, NodeExistsError):
                return False
            except NoNodeError:  # of the node to delete, or a directory that was removed
                await self._store.ensure_path(parent_of(path))
                await self._store.ensure_path(paths.ACL_CHANGES[pattern.pattern_type])
                return False
            logger.info("the ACLs of %s are changed", pattern)
        self._put(pattern, new)
        return True


def _writes(pattern: ResourcePattern, node: Node | None, old: Entries, new: Entries) -> list[Op]:
    """What makes the ACLs of a pattern ``new``, which are ``old`` and in ``node``, and tells others of it;
    nothing where there is nothing to do."""
    path = paths.acl_path(pattern)
    write: Op
    if node is None:
        if not new:
            return []
        write = CreateOp(path, paths.encode_acls(new))
    elif not new:
        write = DeleteOp(path, node.stat.version)
    elif new != old:
        write = SetOp(path, paths.encode_acls(new), node.stat.version)
    else:
        return []
    change_path = paths.acl_change_prefix(pattern.pattern_type)
    return [write, CreateOp(change_path, paths.encode_acl_change(pattern), sequential=True)]


def _why_not_searched(
    wanted: AclBindingFilter, unread: Mapping[ResourcePattern, KafkaError]
) -> KafkaError | None:
    """Why a filter may not have found what it is to delete: the ACLs of some patterns could not be read."""
    if not unread:
        return None
    exact = wanted.pattern.exact()
    return next((unread[each] for each in exact or unread if each in unread), None)


def _too_many(pattern: ResourcePattern, count: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REQUEST,
        f"{count} ACLs of {pattern} are too many: together they must fit into {DATA_BYTES_MAX} bytes",
    )


def authorizer_data(config: BrokerConfig) -> AuthorizerData:
    """Of a broker with an authorizer, before any ACL is loaded.

    Raises:
        ConfigError: there is no such authorizer, or ``super.users`` has other than principals.
    """
    if config.authorizer_class_name.strip() not in CLASS_NAMES:
        raise ConfigError(
            f"authorizer.class.name={config.authorizer_class_name}: must be {' or '.join(CLASS_NAMES)}, "
            "or empty for none"
        )
    try:
        super_users = parse_super_users(config.super_users)
    except ConfigError as error:
        raise ConfigError(f"super.users={config.super_users}: {error}") from None
    for user in super_users:
        if f",{USER}:" in user.name.replace(" ", ""):  # a comma may be in a name, as in CN=alice,O=Example
            logger.warning("super.users has one user %s; several are separated by semicolons", user)
    return AuthorizerData(super_users, allows_everyone_if_no_acl_found=config.allow_everyone_if_no_acl_found)


class AclAuthorizer:
    """An ``Authorizer``."""

    def __init__(self, data: AuthorizerData, acls: AclStore, counts: AuthorizerMetrics) -> None:
        self._data = data
        self._acls = acls
        self._counts = counts

    def __repr__(self) -> str:
        return f"AclAuthorizer({self._data!r}, {self._counts!r})"

    def follow(self, changed: Callable[[], None]) -> None:
        """``changed`` is called after every change of the ACLs."""
        self._acls.follow(changed)

    def is_allowed(
        self,
        asker: Asker,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        logs_allowed: bool = True,
        logs_denied: bool = True,
    ) -> bool:
        """Whether the operation is allowed on the resource of exactly this name."""
        decision = self._data.decide(str(asker.principal), asker.host, operation, resource_type, name)
        if decision.is_allowed:
            self._counts.allowed += 1
            if logs_allowed and audit_logger.isEnabledFor(logging.DEBUG):
                audit_logger.debug("%s", audit_line(asker, operation, resource_type, name, decision))
        else:
            self._counts.denied += 1
            if logs_denied and audit_logger.isEnabledFor(logging.INFO):
                audit_logger.info("%s", audit_line(asker, operation, resource_type, name, decision))
            if logs_denied:  # else it was not asked for: topics are left out of a list
                self._counts.refusals.note(
                    RefusedKind.AUTHORIZATION,
                    f"{operation.name} {camel_case(resource_type)}:{name}",
                    f"{camel_case(ApiKey(asker.api_key))}",
                    str(decision),
                    user=str(asker.principal),
                    client_id=asker.client_id,
                    host=asker.host,
                    now_ms=self._acls.clock.now_ms(),
                )
        return decision.is_allowed

    def is_allowed_on_any(self, asker: Asker, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether it is allowed on some resource of the type (``authorizeByResourceType``)."""
        is_allowed = self._data.is_allowed_on_any(str(asker.principal), asker.host, operation, resource_type)
        if is_allowed:
            self._counts.allowed += 1
        else:
            self._counts.denied += 1
        level = logging.DEBUG if is_allowed else logging.INFO
        if audit_logger.isEnabledFor(level):
            line = _line(asker, is_allowed, operation, resource_type, "UNKNOWN:NONE", references=0)
            audit_logger.log(level, "%s", line)
        return is_allowed


def audit_line(
    asker: Asker, operation: AclOperation, resource_type: ResourceType, name: str, decision: Decision
) -> str:
    """As ``StandardAuthorizerData.buildAuditMessage`` writes it."""
    line = _line(asker, decision.is_allowed, operation, resource_type, f"LITERAL:{name}", references=1)
    return f"{line} based on rule {_visible(str(decision))}"


def _line(
    asker: Asker,
    is_allowed: bool,
    operation: AclOperation,
    resource_type: ResourceType,
    resource: str,
    *,
    references: int,
) -> str:
    return (
        f"Principal = {_visible(str(asker.principal))} is {'Allowed' if is_allowed else 'Denied'} "
        f"operation = {operation.name} from host = {asker.host} "
        f"on resource = {camel_case(resource_type)}:{_visible(resource)} "
        f"for request = {camel_case(ApiKey(asker.api_key))} with resourceRefCount = {references}"
    )


def _visible(text: str) -> str:
    """Names of groups and users are whatever clients say: none of them may begin a line of its own."""
    return text if text.isprintable() else ascii(text)[1:-1]

"""The features of a cluster, the level at which each stands, and how the cluster changes it.

Kafka: ``BrokerFeatures``, ``Feature``, ``TransactionVersion``, ``GroupVersion``, ``ShareVersion``,
``EligibleLeaderReplicasVersion``, ``FinalizedFeatures``, ``FeatureZNode``, ``FinalizedFeatureChangeListener``
(3.9), ``FeatureControlManager``; KIP-584, KIP-1022. A broker supports each feature in a range of levels, and
the cluster has agreed on one of them (its finalized level). UpdateFeatures moves it
(``server.apis.cluster``), ``FinalizedFeatureStore`` keeps it and hears of changes, and ApiVersions tells
clients. A new cluster has the levels of a new cluster of Kafka 4.4.

| feature | levels | what they bring |
|---|---|---|
| ``eligible.leader.replicas.version`` | 0 to 1 | eligible leader replicas (KIP-966); always 1 |
| ``group.version`` | 0 to 1 | 1: the consumer protocol of groups (KIP-848) |
| ``kraft.version`` | 0 to 1 | nothing here: Kafka's tools take the levels of a release as a whole; always 1 |
| ``metadata.version`` | 7 to 33 | nothing here: Kafka's tools know a release by it; always 33, that of 4.4 |
| ``share.version`` | 0 to 2 | 1: share groups (KIP-932); 2: their dead letter queues (KIP-1191) |
| ``streams.version`` | 0 to 1 | 1: streams groups (KIP-1071) |
| ``transaction.version`` | 0 to 2 | 1: records of newer format; 2: the second protocol (KIP-890) |

Clients are told the ranges of 4.4, whatever a level means here. Three levels are never lowered: two of them
Kafka does not lower either, because metadata might be lost; eligible leader replicas it lets one switch off.

Level 0 is that of a feature that is not there: its APIs are answered with UNSUPPORTED_VERSION. A producer
that knows the second version of the transaction protocol chooses it at ``transaction.version`` 2; the first
is always served. Java's producer looks at the level (``TransactionManager``); librdkafka, aiokafka and
kafka-python do not. A release that ``api.versions`` imitates has levels of its own
(``protocol.wire.api_versions``).

The levels are in the store, in ``/feature``, where Kafka on ZooKeeper kept them. There is no such node until
a level is changed: every feature is at its default. Or until an Apache Kafka 3.9 comes into the cluster,
whose controllers make the node: a feature that it does not name is switched off then, as it is for Kafka 3.9.
Java's producers would otherwise use the second version of the transaction protocol, of which brokers of 3.9
know nothing. When they are gone an administrator raises the levels.

The node's version is the epoch of the levels, with one added, so that the first change is a newer epoch than
that of a cluster which has changed none. Every broker watches the node. A change is one conditional write: of
two that come together the second is judged by what the first has made of the levels.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Final

from minikafka.coordination import paths
from minikafka.coordination.store import (
    BadVersionError,
    CoordinationStore,
    NodeExistsError,
    NoNodeError,
    StoreError,
    WatchEvent,
)
from minikafka.errors import ErrorCode, KafkaError, StartError
from minikafka.named_tuple import NamedTuple
from minikafka.protocol.wire.api_versions import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    GROUP_VERSION,
    METADATA_VERSION,
    SHARE_GROUP_APIS,
    STREAMS_GROUP_APIS,
    TRANSACTION_VERSION,
    ApiKey,
)
from minikafka.server.cluster.coordination_store import mapped_store_failures
from minikafka.types import BrokerId

logger = logging.getLogger(__name__)

KRAFT_VERSION: Final = "kraft.version"
SHARE_VERSION: Final = "share.version"
STREAMS_VERSION: Final = "streams.version"

DEAD_LETTER_QUEUES: Final = 2
"""The level of ``share.version`` from which on share groups have them (``supportsShareGroupDLQ``)."""

NO_LEVEL: Final = 0
"""Of a feature that is switched off, or that the cluster does not have."""

FIRST_EPOCH: Final = 0
"""Of a cluster that has changed no level. More than -1, of a client that has heard of none."""

NEVER_LOWERED: Final = frozenset({ELIGIBLE_LEADER_REPLICAS_VERSION, KRAFT_VERSION, METADATA_VERSION})
"""See the module header."""

APIS: Final[Mapping[ApiKey, str]] = {
    ApiKey.CONSUMER_GROUP_HEARTBEAT: GROUP_VERSION,
    ApiKey.CONSUMER_GROUP_DESCRIBE: GROUP_VERSION,
    **dict.fromkeys(SHARE_GROUP_APIS, SHARE_VERSION),
    **dict.fromkeys(STREAMS_GROUP_APIS, STREAMS_VERSION),
}
"""Which feature an API belongs to; those of a feature that is switched off are refused."""

RETRY_PAUSE_MS = 1000
"""While the store cannot be reached."""

WRITE_ATTEMPTS_MAX = 5
"""Lost races before a change gives up."""

NOT_SUPPORTED: Final = (0, 0)
"""The levels of a feature that a broker does not know."""


class SupportedLevels(NamedTuple):
    """What a broker knows of a feature, and the level that a new cluster has."""

    min: int
    max: int
    default: int


FEATURES: Final[Mapping[str, SupportedLevels]] = {
    ELIGIBLE_LEADER_REPLICAS_VERSION: SupportedLevels(0, 1, 1),
    GROUP_VERSION: SupportedLevels(0, 1, 1),
    KRAFT_VERSION: SupportedLevels(0, 1, 1),
    METADATA_VERSION: SupportedLevels(7, 33, 33),
    SHARE_VERSION: SupportedLevels(0, 2, 2),
    STREAMS_VERSION: SupportedLevels(0, 1, 1),
    TRANSACTION_VERSION: SupportedLevels(0, 2, 2),
}
"""In alphabetical order."""


DEFAULT_LEVELS: Final[Mapping[str, int]] = {name: levels.default for name, levels in FEATURES.items()}


LEVELS_OF_KAFKA_3_9: Final[Mapping[str, int]] = {
    name: levels.default if name in NEVER_LOWERED else levels.min for name, levels in FEATURES.items()
}
"""What can be switched off is."""


class FinalizedFeatures:
    """The levels as this broker knows them: ``Services.features``. Ask each time; a level may change."""

    def __init__(self, levels: Mapping[str, int] = DEFAULT_LEVELS, *, epoch: int = FIRST_EPOCH) -> None:
        self._levels = dict(levels)
        self._epoch = epoch

    def __repr__(self) -> str:
        return f"FinalizedFeatures({self._levels}, epoch {self._epoch})"

    @property
    def epoch(self) -> int:
        """Rises with each change of a level."""
        return self._epoch

    def level(self, name: str) -> int:
        """``NO_LEVEL`` of a feature that the cluster does not have."""
        return self._levels.get(name, NO_LEVEL)

    def levels(self) -> Mapping[str, int]:
        """Of the features that are not switched off, as Kafka tells them."""
        return {name: level for name, level in self._levels.items() if level != NO_LEVEL}

    def all_levels(self) -> Mapping[str, int]:
        """Of those that are switched off, too."""
        return self._levels

    def replace(self, levels: Mapping[str, int], *, epoch: int) -> None:
        """Take in what the cluster has agreed on."""
        self._levels = dict(levels)
        self._epoch = epoch


class UpgradeType(IntEnum):
    """``FeatureUpdate.UpgradeType``."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


_WHY_NO_METADATA_DOWNGRADE: Final = {
    UpgradeType.SAFE_DOWNGRADE: (
        "Refusing to perform the requested downgrade because it might delete metadata information."
    ),
    UpgradeType.UNSAFE_DOWNGRADE: "Unsafe metadata downgrade is not supported in this version.",
}
"""``FeatureControlManager.updateMetadataVersion``: from that of 4.4 down to any level metadata changed."""


class LevelUpdate(NamedTuple):
    """What UpdateFeatures asks of one feature; ``upgrade_type`` as it came, of whatever value."""

    name: str
    level: int
    upgrade_type: int


class FinalizedFeatureStore:
    """``load`` before clients are served, then ``run`` as a task."""

    def __init__(self, store: CoordinationStore, features: FinalizedFeatures, *, node_id: BrokerId) -> None:
        """``features`` is kept as the store has it."""
        self._store = store
        self._features = features
        self._node_id = node_id
        self._followers: list[Callable[[], None]] = []
        self._notice = asyncio.Event()

    def __repr__(self) -> str:
        return f"FinalizedFeatureStore({self._features!r})"

    def follow(self, changed: Callable[[], None]) -> None:
        """``changed`` is called after every change of the levels."""
        self._followers.append(changed)

    # As it is

    async def load(self) -> None:
        """Read the levels, and watch them.

        Raises:
            StartError: the cluster is at a level that this broker does not support. StoreError.
        """
        await self._reload()
        for name, level in self._features.levels().items():
            supported = FEATURES.get(name)
            if supported is None or not supported.min <= level <= supported.max:
                known = "no level" if supported is None else f"{supported.min} to {supported.max}"
                raise StartError(
                    f"the cluster's {name} is {level}, of which this broker knows {known}: "
                    "start a broker of a newer release, or lower the level first"
                )

    async def _reload(self) -> None:
        if await self._store.exists(paths.FEATURE, watch=self._noticed) is None:
            levels, epoch = dict(DEFAULT_LEVELS), FIRST_EPOCH
        else:
            levels, epoch = await self._read()
        if (levels, epoch) != (self._features.all_levels(), self._features.epoch):
            self._features.replace(levels, epoch=epoch)
            for changed in self._followers:
                changed()

    async def _read(self) -> tuple[dict[str, int], int]:
        """The levels of all features, and their epoch."""
        try:
            node = await self._store.get(paths.FEATURE)
        except NoNodeError:
            return dict(DEFAULT_LEVELS), FIRST_EPOCH
        return {**LEVELS_OF_KAFKA_3_9, **paths.decode_features(node.data)}, _epoch(node.stat.version)

    def _noticed(self, event: WatchEvent) -> None:
        self._notice.set()

    async def session_began(self) -> None:
        """Look again: the watch went with the old session."""
        self._notice.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._notice.wait()
            self._notice.clear()
            try:
                await self._reload()
            except StoreError as error:
                logger.warning("the features' levels wait for the coordination store: %s", error)
                await asyncio.sleep(RETRY_PAUSE_MS / 1000)
                self._notice.set()

    # Changing it

    async def update(self, updates: list[LevelUpdate], *, validate_only: bool) -> None:
        """Change the levels, of all features or of none.

        Raises:
            KafkaError: INVALID_UPDATE_VERSION for the first update that cannot be; REQUEST_TIMED_OUT when
                others were faster too often; what the store's failures mean.
        """
        with mapped_store_failures("changing levels of features"):
            supported = await self._supported_by_others()
            for _ in range(WRITE_ATTEMPTS_MAX):
                levels, epoch = await self._read()
                for update in updates:
                    self._check(update, levels, supported)
                if validate_only:
                    return
                changed = levels | {update.name: update.level for update in updates}
                if changed == levels:
                    return
                data = paths.encode_features(changed)
                try:
                    if epoch == FIRST_EPOCH:
                        await self._store.create(paths.FEATURE, data)
                    else:
                        await self._store.set(paths.FEATURE, data, epoch - _epoch(0))
                except (BadVersionError, NodeExistsError, NoNodeError):
                    continue
                await self._reload()
                return
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "Others changed levels of features all the time.")

    async def _supported_by_others(self) -> dict[int, Mapping[str, tuple[int, int]]]:
        """What each other live broker supports, as its registration says."""
        supported: dict[int, Mapping[str, tuple[int, int]]] = {}
        for name in await self._store.children(paths.BROKER_IDS):
            if int(name) != self._node_id:
                try:
                    node = await self._store.get(paths.broker_path(int(name)))
                except NoNodeError:
                    continue
                supported[int(name)] = paths.decode_broker(int(name), node.data).features
        return supported

    def _check(
        self,
        update: LevelUpdate,
        levels: Mapping[str, int],
        others: Mapping[int, Mapping[str, tuple[int, int]]],
    ) -> None:
        """Kafka: ``FeatureControlManager.updateFeature``. Raises KafkaError INVALID_UPDATE_VERSION."""
        name, level, upgrade_type = update
        own = FEATURES.get(name)
        refusals = [
            _unsupported(f"Local controller {self._node_id}", (own.min, own.max) if own else None, level)
        ]
        refusals += [
            _unsupported(f"Broker {node_id}", ranges.get(name), level) for node_id, ranges in others.items()
        ]
        current = levels.get(name, 0)
        why: str | None
        if upgrade_type not in tuple(UpgradeType):
            why = "The controller does not support the given upgrade type."
        elif level < 0:
            why = "A feature version cannot be less than 0."
        elif any(refusals):
            why = next(filter(None, refusals))
        elif level < current and upgrade_type == UpgradeType.UPGRADE:
            why = (
                "Can't downgrade the version of this feature without setting the upgrade type to either safe "
                "or unsafe downgrade."
            )
        elif level > current and upgrade_type != UpgradeType.UPGRADE:
            why = "Can't downgrade to a newer version."
        elif own is None:
            why = f"Feature {name} not found."
        elif name == METADATA_VERSION and level < current:
            raise KafkaError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"Unsupported metadata.version downgrade from {current} to {level}. "
                + _WHY_NO_METADATA_DOWNGRADE[UpgradeType(upgrade_type)],
            )
        elif name in NEVER_LOWERED and level < current:
            why = "Can't downgrade the version of this feature."
        else:
            return
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION, f"Invalid update version {level} for feature {name}. {why}"
        )


async def keep_to_levels_of_kafka(store: CoordinationStore) -> None:
    """An Apache Kafka 3.9 is in the cluster: where no levels are set, those of 3.9 are. Raises StoreError."""
    if await store.exists(paths.FEATURE) is None:
        with contextlib.suppress(NodeExistsError):  # by another one
            await store.create(paths.FEATURE, paths.encode_features({}))
            logger.warning("an Apache Kafka is in the cluster: features are on the levels of Kafka 3.9")


def _epoch(version: int) -> int:
    """Of the levels that a node of that version has."""
    return FIRST_EPOCH + 1 + version


def _unsupported(broker: str, levels: tuple[int, int] | None, level: int) -> str | None:
    """Why ``broker`` cannot have that level; None: it can (``QuorumFeatures.reasonNotSupported``)."""
    low, high = levels or NOT_SUPPORTED
    if low <= level <= high:
        return None
    if levels is None:
        return f"{broker} does not support this feature."
    return f"{broker} only supports versions {low if low == high else f'{low}-{high}'}"

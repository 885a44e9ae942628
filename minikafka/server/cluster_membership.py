"""A broker's place in its cluster: joining it, keeping the place, leaving it.

Kafka: ``KafkaServer.startup`` and ``controlledShutdown``, from the registration on.

Joining: register, be a candidate for controller, wait until the controller has told everything once. From
then on this broker answers for the cluster; before, clients find it empty and ask again.

Leaving: ask the controller to move the partitions that are led here (ControlledShutdown), as often as
``controlled.shutdown.max.retries`` says; then the broker stops whatever came of it.

Where it differs from Kafka: a broker whose leaders were moved serves on until it has heard so itself, and for
a moment more. A client that comes meanwhile is told who leads now. Without that, a client would only see its
connection break, might ask a broker that has not heard yet, and look again a second later.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec

from minikafka.controller.events import UncleanElectionEnabled
from minikafka.coordination import paths
from minikafka.coordination.paths import BrokerRegistration
from minikafka.coordination.store import StoreError
from minikafka.errors import ErrorCode, PeerProtocolError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.control import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    ControlRequest,
    LeaderAndIsrRequest,
    LiveBroker,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from minikafka.server.apis import control
from minikafka.server.cluster.coordination_store import StorePatience
from minikafka.server.cluster.registration import SessionKeeper, current_controller, register_broker
from minikafka.server.config_store import ConfigChangeListener
from minikafka.server.controller.alter_partition import AlterPartitionManager, IsrManager
from minikafka.server.controller.channel import RemoteBroker, Send
from minikafka.server.runtime.event_loop import Restart
from minikafka.server.services import Services

logger = logging.getLogger(__name__)

INITIAL_METADATA_TIMEOUT_MS = 10_000
"""How long a start waits for the controller. A broker without one is up all the same, as in Kafka; it serves
when there is one."""

ANNOUNCE_RETRY_MS = 1_000

MOVED_TIMEOUT_MS = 2_000
"""How long a stopping broker waits until the controller has told it who leads what it led."""

DRAIN_GRACE_MS = 250
"""How long it then tells clients so. They ask for the metadata 100 ms after they are refused (the default of
``retry.backoff.ms``), and librdkafka loses a second when the first answer that names the new leader does not
list the old one any more."""


class OwnBroker:
    """The controller's requests to the broker that it runs in: called, not sent."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, request: ControlRequest) -> Any:
        match request:
            case LeaderAndIsrRequest():
                return await control.handle_leader_and_isr(self._services, None, request)
            case StopReplicaRequest():
                return await control.handle_stop_replica(self._services, None, request)
            case UpdateMetadataRequest():
                return await control.handle_update_metadata(self._services, None, request)
            case ControlledShutdownRequest():
                return await control.handle_controlled_shutdown(self._services, None, request)


def open_sender(services: Services, broker: LiveBroker, controller_epoch: int) -> Send:
    """How the controller of ``controller_epoch`` reaches ``broker``."""
    if broker.node_id == services.node_id:
        return OwnBroker(services)
    listener = services.config.inter_broker_listener()
    endpoint = broker.endpoint(listener)
    return RemoteBroker(
        None if endpoint is None else (endpoint.host, endpoint.port),
        name=f"broker {broker.node_id}",
        client_id=f"controller-{services.node_id}-epoch-{controller_epoch}",
        timeout_ms=services.config.controller_socket_timeout_ms,
        connect=services.connect,
        listener_name=listener,
        is_of_0_2=broker.is_of_0_2,
    )


class ClusterMembership:
    """Made when everything else of the broker is there."""

    def __init__(
        self,
        services: Services,
        *,
        sessions: SessionKeeper,
        alter_partitions: AlterPartitionManager,
        isr_manager: IsrManager,
        config_changes: ConfigChangeListener,
    ) -> None:
        self._services = services
        self._sessions = sessions
        self._alter_partitions = alter_partitions
        self._isr_manager = isr_manager
        self._config_changes = config_changes
        self._registration: BrokerRegistration | None = None

    def __repr__(self) -> str:
        return f"ClusterMembership({self._registration}, {self._sessions})"

    async def join(self, registration: BrokerRegistration) -> None:
        """Register, and wait for the controller's first words.

        Raises:
            StartError: this broker's id is taken. StoreError: the store's.
        """
        services = self._services
        self._registration = registration
        patience = StorePatience(services.store, services.clock)
        await patience.until_connected("the registration", self._register)
        self._sessions.on_new_session(self._register)
        self._sessions.on_new_session(self._config_changes.session_began)
        self._sessions.on_new_session(services.feature_store.session_began)
        if services.acls is not None:
            self._sessions.on_new_session(services.acls.session_began)
        await self._sessions.established()
        services.configs.subscribe_topics(self._topic_config_changed)
        start = services.supervisor.start
        start("session", self._sessions.run, restart=Restart.ALWAYS)
        start("controller", services.controller.run, restart=Restart.ALWAYS)
        start("alter-partitions", self._alter_partitions.run, restart=Restart.ALWAYS)
        start("isr-changes", self._isr_manager.write_changes, restart=Restart.ALWAYS)
        start("isr-announcements", self._isr_manager.announce_changes, restart=Restart.ALWAYS)
        start("config-changes", self._config_changes.run, restart=Restart.ALWAYS)
        start("feature-changes", services.feature_store.run, restart=Restart.ALWAYS)
        if services.acls is not None:
            start("acl-changes", services.acls.run, restart=Restart.ALWAYS)
        try:
            async with asyncio.timeout(INITIAL_METADATA_TIMEOUT_MS / 1000):
                await services.metadata_received.wait()
        except TimeoutError:
            logger.warning(
                "no metadata received from the controller for %d ms; partitions are served once it arrives",
                INITIAL_METADATA_TIMEOUT_MS,
            )

    async def _register(self) -> None:
        assert self._registration is not None
        services = self._services
        registration = self._registration
        services.broker_epoch = await register_broker(
            services.store, services.node_id, registration, patience_ms=services.store.session_timeout_ms
        )
        # This process lives on: when it registers again, after its session expired, its logs are whole.
        self._registration = msgspec.structs.replace(registration, clean_start=True)

    def _topic_config_changed(self, topic: str, config: Any) -> None:
        """A controller that runs here elects leaders where unclean elections are allowed now. It looks at
        what is leaderless, so it may be told too often, and nothing has to be remembered of before."""
        if config.unclean_leader_election_enable:
            self._services.controller.notify(UncleanElectionEnabled(topic))

    # Failing

    def log_directory_failed(self) -> None:
        """Tell the controller that partitions have gone offline here."""
        self._services.supervisor.start("log-dir-event", self._announce_failure)

    async def _announce_failure(self) -> None:
        data = paths.encode_log_dir_event(self._services.node_id)
        while True:
            try:
                await self._services.store.create(paths.LOG_DIR_EVENT_PREFIX, data, sequential=True)
            except StoreError as error:
                logger.warning("the controller does not know of the failed log directory yet: %s", error)
                await asyncio.sleep(ANNOUNCE_RETRY_MS / 1000)
            else:
                return

    # Leaving

    async def leave(self) -> None:
        """Have the leaders moved away. Never fails; what could not be moved is logged."""
        config, metadata = self._services.config, self._services.metadata
        if self._registration is None or not config.controlled_shutdown_enable:
            return

        def is_alone() -> bool:
            return not any(broker.node_id != self._services.node_id for broker in metadata.brokers())

        has_led = self._is_leading()
        self._services.replica_manager.is_leaving = True
        for tries_left in reversed(range(config.controlled_shutdown_max_retries)):
            if is_alone():
                return  # there is no other broker to lead
            try:
                async with asyncio.timeout(config.controller_socket_timeout_ms / 1000):
                    why = await self._try_to_leave()
            except (StoreError, BrokerUnavailable, PeerProtocolError) as error:
                why = str(error)
            except TimeoutError:  # a controller on this broker waits for the store, for as long as it takes
                why = "the controller does not answer"
            if why is None:
                logger.info("the partitions that were led here have other leaders")
                if has_led:
                    await metadata.wait_for(lambda: not self._is_leading(), timeout_ms=MOVED_TIMEOUT_MS)
                    await asyncio.sleep(DRAIN_GRACE_MS / 1000)
                return
            logger.warning("leaders were not moved: %s (%d tries left)", why, tries_left)
            if tries_left:
                await metadata.wait_for(is_alone, timeout_ms=config.controlled_shutdown_retry_backoff_ms)

    def _is_leading(self) -> bool:
        """Whether anything is led here that others could lead."""
        return any(
            partition.leader_id == self._services.node_id and len(partition.replicas) > 1
            for partition in self._services.replica_manager.partitions.values()
        )

    async def _try_to_leave(self) -> str | None:
        """Ask once. Returns what is in the way, None when nothing is.

        Raises:
            StoreError, BrokerUnavailable, PeerProtocolError.
        """
        services = self._services
        controller_id = await current_controller(services.store)
        if controller_id is None:
            return "there is no controller"
        broker = services.metadata.live_broker(controller_id)
        if broker is None:
            return f"the controller, broker {controller_id}, is not known here"
        send = open_sender(services, broker, 0)
        try:
            response: ControlledShutdownResponse = await send(
                ControlledShutdownRequest(services.node_id, services.broker_epoch)
            )
        finally:
            if isinstance(send, RemoteBroker):
                await send.close()
        if response.error_code:
            return f"the controller answers {ErrorCode(response.error_code).name}"
        if response.remaining_partitions:
            some = ", ".join(str(each) for each in response.remaining_partitions[:5])
            return f"{len(response.remaining_partitions)} partitions have no other replica: {some}"
        return None

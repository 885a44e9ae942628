"""The controller's effects, carried out: on the store, the channels to the brokers, the configurations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_never

from minikafka.config.topic import TopicConfig
from minikafka.controller import effects
from minikafka.controller.effects import Effect, ElectionConfig
from minikafka.controller.events import Event
from minikafka.protocol.control.messages import (
    ControlRequest,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from minikafka.server.configs.service import ConfigService
from minikafka.server.controller.channel import ControllerChannels
from minikafka.server.controller.store import ControllerStore
from minikafka.types import BrokerId


class ControllerEffects:
    """Made at an election, for one controller epoch."""

    def __init__(
        self,
        store: ControllerStore,
        channels: ControllerChannels,
        configs: ConfigService,
        *,
        node_id: BrokerId,
        controller_epoch: int,
        remind: Callable[[Event, int], object],
    ) -> None:
        """``remind`` is given an event and in how many milliseconds it shall come."""
        self._store = store
        self._channels = channels
        self._configs = configs
        self._node_id = node_id
        self._controller_epoch = controller_epoch
        self._remind = remind

    async def perform(self, effect: Effect) -> Any:
        """Carry out one effect; returns what ``controller.effects`` says.

        Raises:
            ControllerMoved: a write's guard failed. StoreError: the store's.
        """
        store = self._store
        match effect:
            case effects.ReadBrokers():
                brokers = await store.brokers()
                await self._channels.update(brokers)
                return brokers
            case effects.ReadTopics():
                return await store.topics()
            case effects.ReadAssignments(topics):
                return await store.assignments(topics)
            case effects.ReadPartitionStates(partitions, is_watched):
                return await store.states.read(partitions, is_watched=is_watched)
            case effects.CreatePartitionStates(states):
                return await store.states.create(states)
            case effects.WritePartitionStates(states):
                return await store.states.write(states)
            case effects.AssignTopicIds(topics):
                return await store.assign_topic_ids(topics)
            case effects.ReadTopicConfigs(topics):
                configs = await self._configs.read_topic_configs(topics)
                return {topic: _election_config(config) for topic, config in configs.items()}
            case effects.ReadTopicDeletions():
                return await store.notifications.topic_deletions()
            case effects.DeleteTopicNodes(topic):
                return await store.delete_topic(topic)
            case effects.DropTopicDeletions(topics):
                return await store.notifications.drop_topic_deletions(topics)
            case effects.WriteAssignments(changes):
                return await store.write_assignments(changes)
            case effects.ReadReassignments():
                return await store.notifications.reassignments()
            case effects.LeaveReassignments(replicas):
                return await store.notifications.leave_reassignments(replicas)
            case effects.Remind(event, after_ms):
                self._remind(event, after_ms)
            case effects.TakePreferredElections():
                return await store.notifications.take_preferred_elections()
            case effects.TakeIsrChanges():
                return await store.notifications.take_isr_changes()
            case effects.TakeLogDirEvents():
                return await store.notifications.take_log_dir_events()
            case effects.SendLeaderAndIsr() | effects.SendUpdateMetadata() | effects.SendStopReplica():
                self._send(effect)
            case _:
                assert_never(effect)
        return None

    def _send(
        self, effect: effects.SendLeaderAndIsr | effects.SendUpdateMetadata | effects.SendStopReplica
    ) -> None:
        match effect:
            case effects.SendLeaderAndIsr(to, partitions, live_leaders, is_full):
                self._enqueue(
                    to,
                    lambda epoch: LeaderAndIsrRequest(
                        self._node_id, self._controller_epoch, epoch, partitions, live_leaders, is_full
                    ),
                )
            case effects.SendStopReplica(to, stopped):
                self._enqueue(
                    to,
                    lambda epoch: StopReplicaRequest(self._node_id, self._controller_epoch, epoch, stopped),
                )
            case effects.SendUpdateMetadata(brokers, partitions, live_brokers, is_full):
                for broker in brokers:
                    self._enqueue(
                        broker,
                        lambda epoch: UpdateMetadataRequest(
                            self._node_id, self._controller_epoch, epoch, partitions, live_brokers, is_full
                        ),
                    )

    def _enqueue(self, to: BrokerId, request: Any) -> None:
        channel = self._channels.get(to)
        if channel is not None:  # else it went, and what it has to know it will be told when it returns
            made: ControlRequest = request(channel.broker.epoch)
            channel.enqueue(made)


def _election_config(config: TopicConfig) -> ElectionConfig:
    return ElectionConfig(
        unclean_leader_election=config.unclean_leader_election_enable,
        min_insync_replicas=config.min_insync_replicas,
    )

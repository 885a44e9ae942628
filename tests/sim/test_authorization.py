"""What brokers ask of each other is authorised too, and CLUSTER_ACTION is all that they need."""

from __future__ import annotations

from minikafka.security.acl import AclOperation
from minikafka.testing.simulation.client import SimulatedClient, make_batch
from minikafka.testing.simulation.invariants import hosted_partitions
from minikafka.testing.simulation.scenarios.faults import until
from minikafka.testing.simulation.simulation import Simulation
from minikafka.types import TopicPartition
from tests.support.authorization_table import on_cluster, on_topic
from tests.support.fake_authorizer import FakeAuthorizer

CLUSTER_ACTION = on_cluster(AclOperation.CLUSTER_ACTION)
OF_THE_CLIENT = (
    on_cluster(AclOperation.CREATE),
    on_topic(AclOperation.DESCRIBE, "t"),
    on_topic(AclOperation.WRITE, "t"),
    on_topic(AclOperation.READ, "t"),
)


def test_brokers_need_cluster_action_and_nothing_else() -> None:
    async def scenario(simulation: Simulation) -> None:
        authorizers = {}
        for node_id in (1, 2):
            broker = await simulation.start_broker(node_id)
            authorizer = authorizers[node_id] = FakeAuthorizer()
            authorizer.allow(CLUSTER_ACTION, *OF_THE_CLIENT)
            broker.server.services.authorizer = authorizer
        client = SimulatedClient([(f"broker-{node_id}", 9092) for node_id in (1, 2)])
        await client.create_topic("t", assignment=[[1, 2], [2, 1]])

        def is_whole() -> bool:
            partitions = [
                each for broker in simulation.brokers.values() for each in hosted_partitions(broker)
            ]
            led = [each for each in partitions if each.is_leader]
            return len(led) == 2 and all(len(each.isr) == 2 for each in led)

        await until(is_whole, "both are in sync")
        for partition in (0, 1):
            await client.deliver("t", partition, make_batch([b"v"]), acks=-1)
        assert not any(authorizer.logged_denials for authorizer in authorizers.values())

        authorizers[1].allow(*OF_THE_CLIENT)
        await client.deliver("t", 0, make_batch([b"v"]), acks=1)
        await until(
            lambda: CLUSTER_ACTION in authorizers[1].logged_denials, "the follower of broker 1 is refused"
        )
        await client.deliver(
            "t", 0, make_batch([b"v"]), acks=1
        )  # the one before left with a fetch that waited
        leader, follower = (
            next(each for each in hosted_partitions(broker) if each.topic_partition == TopicPartition("t", 0))
            for broker in (simulation.brokers[1], simulation.brokers[2])
        )
        assert (leader.log.log_end_offset, follower.log.log_end_offset) == (3, 2)

        authorizers[1].allow(CLUSTER_ACTION, *OF_THE_CLIENT)
        await until(lambda: follower.log.log_end_offset == 3, "it has caught up")

    Simulation(41).run(scenario)

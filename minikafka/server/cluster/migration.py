"""A cluster that migrates to KRaft (KIP-866), in which no broker of this project can be.

Kafka: ``ZkMigrationClient``, ``KafkaZkClient.registerKRaftControllerAsZkController`` and
``ZkMigrationLeadershipState`` of 3.9. No broker writes what marks a migration, so a cluster that has never
begun one has none of it:

- ``/migration`` is made by the KRaft controllers when they first look at the tree, with -1 in all fields. It
  names a controller once that has copied the cluster's metadata.
- ``/controller`` is taken from the brokers by the KRaft controller before it copies anything. Its node is not
  ephemeral, and has the epoch of that controller, which is -1 for a broker.

So a ``/migration`` that names none is no migration yet: KRaft controllers wait until all brokers have
registered with them, which ours never do. One that names a controller stays when the cluster goes back to
ZooKeeper, until it is deleted, as Kafka's documentation has it.
"""

from __future__ import annotations

from minikafka.coordination import paths
from minikafka.coordination.paths import ControllerRegistration
from minikafka.coordination.store import CoordinationStore, NoNodeError
from minikafka.errors import StartError

_WHY = (
    "the cluster migrates to KRaft: {found}. Brokers of minikafka know no KRaft: replace them by those of "
    "Apache Kafka before the migration, or go back to ZooKeeper, which ends with deleting /controller and "
    "/migration"
)


class MigratesToKRaftError(StartError):
    """The brokers of this cluster follow a KRaft controller, or will."""


def refuse_kraft_controller(controller: ControllerRegistration) -> None:
    """Raises MigratesToKRaftError: what holds ``/controller`` is no broker."""
    if controller.kraft_controller_epoch >= 0:
        found = (
            f"{paths.CONTROLLER} is held by the KRaft controller {controller.broker_id} of epoch "
            f"{controller.kraft_controller_epoch}"
        )
        raise MigratesToKRaftError(_WHY.format(found=found))


async def refuse_migration(store: CoordinationStore) -> None:
    """At the start of a broker, before it writes anything.

    Raises:
        MigratesToKRaftError: the migration has begun. StoreError.
    """
    try:
        refuse_kraft_controller(paths.decode_controller((await store.get(paths.CONTROLLER)).data))
    except NoNodeError:
        pass  # no controller at the moment
    try:
        state = paths.decode_migration((await store.get(paths.MIGRATION)).data)
    except NoNodeError:
        return
    if state.kraft_controller_id >= 0 or state.kraft_metadata_offset >= 0:
        found = (
            f"{paths.MIGRATION} names the KRaft controller {state.kraft_controller_id} of epoch "
            f"{state.kraft_controller_epoch}, and the metadata up to offset {state.kraft_metadata_offset}"
        )
        raise MigratesToKRaftError(_WHY.format(found=found))

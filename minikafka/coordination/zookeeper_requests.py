"""The store's words in kazoo's and back: paths below a chroot, transactions, answers, errors, sizes.

Pure functions; paths are valid. Kafka: ``ZooKeeperClient``'s requests and responses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, assert_never

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.hosts import collect_hosts
from kazoo.protocol.serialization import Create
from kazoo.protocol.states import ZnodeStat
from kazoo.security import OPEN_ACL_UNSAFE

from minikafka.coordination.store import (
    BadVersionError,
    CheckOp,
    ConnectionLossError,
    CreateOp,
    DeleteOp,
    InvalidNodeError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NodeStat,
    NoNodeError,
    NotEmptyError,
    Op,
    OpResult,
    SessionExpiredError,
    SetOp,
    StoreError,
    StoreUnusableError,
    parent_of,
    validate_path,
)

REQUEST_BYTES_MAX = 0xFFFFF
"""The server's default of ``jute.maxbuffer``: it hangs up on whoever sends a larger request."""
OP_OVERHEAD_BYTES = 60
"""What a ``create`` takes beside its path and its data: a header, lengths, flags, an access control list."""

_EPHEMERAL, _SEQUENTIAL = 1, 2


# Addresses and paths.


def parse_connect(connect: str) -> tuple[str, str]:
    """``host1:2181,host2:2181/chroot`` → the hosts, and the chroot (empty: none).

    Raises:
        StoreUnusableError: it is not of that form.
    """
    hosts, slash, chroot = connect.partition("/")
    try:
        for host, _ in collect_hosts(hosts)[0]:
            host.encode("idna")  # as the resolver will
        if chroot:
            validate_path(slash + chroot)
    except (ValueError, InvalidNodeError) as error:
        raise StoreUnusableError(
            f"{connect!r} is not host:port, several with commas, and at the end a /path or none ({error})"
        ) from error
    return hosts, slash + chroot if chroot else ""


def absolute(root: str, path: str, *, sequential: bool = False) -> str:
    """The path on the server. ``sequential``: its name may still be empty, and then its slash counts."""
    return path if not root else root if path == "/" and not sequential else root + path


def relative(root: str, path: str) -> str:
    return path.removeprefix(root) or "/"


# Requests.


def validate_size(root: str, ops: Sequence[Op]) -> None:
    """Raises InvalidNodeError: the server would not take the request."""
    size = 0
    for op in ops:
        size += OP_OVERHEAD_BYTES + len(root) + len(op.path.encode())
        if isinstance(op, CreateOp | SetOp):
            size += len(op.data)
    if size > REQUEST_BYTES_MAX:
        raise InvalidNodeError(
            f"{len(ops)} operations of together {size} bytes are more than ZooKeeper takes at once"
            f" ({REQUEST_BYTES_MAX}, its jute.maxbuffer)"
        )


def commit_async(client: KazooClient, root: str, ops: Sequence[Op]) -> Any:
    """Start a transaction; kazoo's asynchronous result."""
    transaction = client.transaction()
    for op in ops:
        match op:
            case CreateOp(path, data, ephemeral, sequential):
                # Not by transaction.create, which takes away the slash at the end of a sequential node
                # without a name.
                flags = _EPHEMERAL * ephemeral | _SEQUENTIAL * sequential
                target = absolute(root, path, sequential=sequential)
                transaction.operations.append(Create(target, data, OPEN_ACL_UNSAFE, flags))
            case SetOp(path, data, version):
                transaction.set_data(absolute(root, path), data, version)
            case DeleteOp(path, version):
                transaction.delete(absolute(root, path), version)
            case CheckOp(path, version):
                transaction.check(absolute(root, path), version)
            case _:
                assert_never(op)
    return transaction.commit_async()


# Answers.


def node_stat(stat: ZnodeStat) -> NodeStat:
    return NodeStat(
        czxid=stat.czxid,
        mzxid=stat.mzxid,
        pzxid=stat.pzxid,
        created_ms=stat.ctime,
        modified_ms=stat.mtime,
        version=stat.version,
        cversion=stat.cversion,
        ephemeral_owner=stat.ephemeralOwner,
        data_length=stat.dataLength,
        num_children=stat.numChildren,
    )


def multi_results(root: str, ops: Sequence[Op], answers: Sequence[Any]) -> list[OpResult]:
    """Raises StoreError: what the first operation that failed is to raise."""
    innocent = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)  # undone, or never begun
    for index, (op, answer) in enumerate(zip(ops, answers, strict=True)):
        if isinstance(answer, Exception) and not isinstance(answer, innocent):
            error = store_error(answer, op)
            error.operation_index = index
            raise error
    results: list[OpResult] = []
    for op, answer in zip(ops, answers, strict=True):
        if isinstance(op, CreateOp):
            results.append(relative(root, answer))
        else:
            results.append(node_stat(answer) if isinstance(op, SetOp) else None)
    return results


_TRANSIENT = (
    kazoo_errors.ConnectionLoss,
    kazoo_errors.ConnectionClosedError,
    kazoo_errors.OperationTimeoutError,
    kazoo_errors.SessionMovedError,
    kazoo_errors.NotReadOnlyCallError,
    kazoo_errors.RequestTimeoutError,
    kazoo_errors.ThrottledOpError,
)
"""Not now, or not on this server: as good as a lost connection."""

_FINAL = {
    kazoo_errors.NoAuthError: "ZooKeeper's access control list forbids it",
    kazoo_errors.AuthFailedError: "ZooKeeper asks for an authentication, which minikafka does not have",
    kazoo_errors.SessionClosedRequireSaslError: "ZooKeeper asks for SASL, which minikafka does not have",
    kazoo_errors.UnimplementedError: "ZooKeeper is older than 3.5",
}


def store_error(error: Exception, subject: Op | str) -> StoreError:
    """kazoo's error as ours. ``subject``: the operation, or the path, that it is about."""
    path = subject if isinstance(subject, str) else subject.path
    creates = isinstance(subject, CreateOp)
    match error:
        case kazoo_errors.NoNodeError() if creates:
            return NoNodeError(f"no node {parent_of(path)} to create {path} in")
        case kazoo_errors.NoNodeError():
            return NoNodeError(f"no node {path}")
        case kazoo_errors.NodeExistsError():
            return NodeExistsError(f"{path} exists")
        case kazoo_errors.BadVersionError():
            return BadVersionError(f"{path} does not have version {getattr(subject, 'version', None)}")
        case kazoo_errors.NotEmptyError():
            return NotEmptyError(f"{path} has children")
        case kazoo_errors.NoChildrenForEphemeralsError():
            return NoChildrenForEphemeralsError(f"{parent_of(path)} is ephemeral: cannot create {path}")
        case kazoo_errors.BadArgumentsError():
            return InvalidNodeError(f"ZooKeeper refuses the path {path}")
        case _ if isinstance(error, _TRANSIENT):  # before its base class, which is next
            return ConnectionLossError(f"{path}: ZooKeeper cannot be reached ({type(error).__name__})")
        case kazoo_errors.SessionExpiredError():
            return SessionExpiredError(f"{path}: the session has expired")
        case _ if type(error) in _FINAL:
            return StoreUnusableError(f"{path}: {_FINAL[type(error)]}")
        case _:
            return StoreError(f"{path}: ZooKeeper failed ({type(error).__name__})")

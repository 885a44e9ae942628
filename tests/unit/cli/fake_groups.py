"""A cluster with groups and logs: what ``minikafka groups`` asks, answered through the real codec."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from minikafka.errors import ErrorCode
from minikafka.types import TopicPartition
from tests.unit.cli.fake_cluster import NONE
from tests.unit.cli.fake_coordinators import FakeCoordinators

HOUR_MS = 3_600_000


class FakeGroup:
    """``readers``: member → topic → partitions."""

    def __init__(self, coordinator: int, kind: str, readers: dict[str, dict[str, list[int]]]) -> None:
        self.coordinator = coordinator
        self.kind = kind
        self.readers = readers
        self.committed: dict[TopicPartition, int] = {}

        self.is_joining = False

    @property
    def state(self) -> str:
        if self.is_joining:
            return "PreparingRebalance" if self.kind == "classic" else "Assigning"
        return "Stable" if self.readers else "Empty"


class FakeGroups(FakeCoordinators):
    """``logs``: first offset, end offset, and the offset of the first record of the last hour."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: dict[str, FakeGroup] = {}
        self.logs: dict[TopicPartition, tuple[int, int, int]] = {}
        self.refuses_commits: dict[TopicPartition, ErrorCode] = {}
        self.internal_topics: set[str] = set()
        """Of streams groups: those that can be deleted."""

    def group(self, name: str, kind: str = "classic", coordinator: int = 2, **readers: Any) -> FakeGroup:
        self.groups[name] = FakeGroup(coordinator, kind, readers)
        return self.groups[name]

    def _code(self, node_id: int, group: str) -> int:
        if self.has_moved():
            return int(ErrorCode.NOT_COORDINATOR)
        found = self.groups.get(group)
        return int(ErrorCode.GROUP_ID_NOT_FOUND if found is None else ErrorCode.NONE)

    def coordinator_of(self, key: str) -> int | None:
        return self.groups[key].coordinator if key in self.groups else None

    def _list_groups(self, node_id: int, request: Any) -> Mapping[str, Any]:
        listed = [
            {
                "group_id": name,
                "protocol_type": "consumer",
                "group_state": each.state,
                "group_type": each.kind,
            }
            for name, each in self.groups.items()
            if each.coordinator == node_id
            and (not request.states_filter or each.state in request.states_filter)
            and (not request.types_filter or each.kind in request.types_filter)
        ]
        return {"throttle_time": 0, "error_code": NONE, "groups": listed}

    def _consumer_group_describe(self, node_id: int, request: Any) -> Mapping[str, Any]:
        (name,) = request.group_ids
        group = self.groups.get(name)
        code = self._code(node_id, name)
        if group is None or group.kind != "consumer":
            code = code or int(ErrorCode.GROUP_ID_NOT_FOUND)
        members = [] if code or group is None else [_kip_848_member(*each) for each in group.readers.items()]
        described = {
            "error_code": code,
            "error_message": None,
            "group_id": name,
            "group_state": group.state if group else "",
            "group_epoch": 1,
            "assignment_epoch": 1,
            "assignor_name": "uniform",
            "members": members,
            "authorized_operations": 0,
        }
        return {"throttle_time": 0, "groups": [described]}

    def _describe_groups(self, node_id: int, request: Any) -> Mapping[str, Any]:
        (name,) = request.groups
        group, code = self.groups.get(name), self._code(node_id, name)
        described = {
            "error_code": code,
            "error_message": f"Group {name} not found." if code else None,
            "group_id": name,
            "group_state": group.state if group else "Dead",
            "protocol_type": "consumer",
            "protocol_data": "range",
            "members": [_classic_member(*each) for each in group.readers.items()] if group else [],
            "authorized_operations": 0,
        }
        return {"throttle_time": 0, "groups": [described]}

    def _offset_fetch(self, node_id: int, request: Any) -> Mapping[str, Any]:
        (asked,) = request.groups
        group = self.groups.get(asked.group_id)
        topics = [
            {
                "name": each.topic,
                "partitions": [
                    {
                        "partition_index": each.partition,
                        "committed_offset": offset,
                        "committed_leader_epoch": -1,
                        "metadata": "",
                        "error_code": NONE,
                    }
                ],
            }
            for each, offset in (group.committed if group else {}).items()
        ]
        return {
            "throttle_time": 0,
            "groups": [{"group_id": asked.group_id, "topics": topics, "error_code": NONE}],
        }

    def _list_offsets(self, node_id: int, request: Any) -> Mapping[str, Any]:
        topics = []
        for topic in request.topics:
            answers = []
            for each in topic.partitions:
                log = self.logs.get(TopicPartition(topic.name, each.partition_index))
                start, end, by_time = log or (-1, -1, -1)
                offset = {-2: start, -1: end}.get(each.timestamp, by_time)
                answers.append(
                    {
                        "partition_index": each.partition_index,
                        "error_code": NONE if log else int(ErrorCode.NOT_LEADER_OR_FOLLOWER),
                        "timestamp": -1,
                        "offset": offset,
                        "leader_epoch": 0,
                    }
                )
            topics.append({"name": topic.name, "partitions": answers})
        return {"throttle_time": 0, "topics": topics}

    def _offset_commit(self, node_id: int, request: Any) -> Mapping[str, Any]:
        group = self.groups.setdefault(request.group_id, FakeGroup(node_id, "classic", {}))
        moved = self.has_moved()
        topics = []
        for topic in request.topics:
            answers = []
            for each in topic.partitions:
                partition = TopicPartition(topic.name, each.partition_index)
                code = ErrorCode.NOT_COORDINATOR if moved else self.refuses_commits.get(partition, NONE)
                if code == NONE:
                    group.committed[partition] = each.committed_offset
                answers.append({"partition_index": each.partition_index, "error_code": int(code)})
            topics.append({"name": topic.name, "partitions": answers})
        return {"throttle_time": 0, "topics": topics}

    def _share_group_describe(self, node_id: int, request: Any) -> Mapping[str, Any]:
        (name,) = request.group_ids
        group = self.groups.get(name)
        code = self._code(node_id, name)
        if group is None or group.kind != "share":
            code = code or int(ErrorCode.GROUP_ID_NOT_FOUND)
        members = [] if code or group is None else [_share_member(*each) for each in group.readers.items()]
        described = {
            "error_code": code,
            "error_message": None,
            "group_id": name,
            "group_state": group.state if group else "",
            "group_epoch": 1,
            "assignment_epoch": 1,
            "assignor_name": "simple",
            "members": members,
            "authorized_operations": 0,
        }
        return {"throttle_time": 0, "groups": [described]}

    def _describe_share_group_offsets(self, node_id: int, request: Any) -> Mapping[str, Any]:
        (asked,) = request.groups
        group = self.groups.get(asked.group_id)
        topics = [
            {
                "topic_name": each.topic,
                "topic_id": None,
                "partitions": [
                    {
                        "partition_index": each.partition,
                        "start_offset": offset,
                        "leader_epoch": 4,
                        "lag": -1 if offset < 0 else self.logs[each][1] - offset,
                        "error_code": NONE,
                        "error_message": None,
                    }
                ],
            }
            for each, offset in (group.committed if group else {}).items()
        ]
        described = {
            "group_id": asked.group_id,
            "topics": topics,
            "error_code": self._code(node_id, asked.group_id),
            "error_message": None,
        }
        return {"throttle_time": 0, "groups": [described]}

    def _alter_share_group_offsets(self, node_id: int, request: Any) -> Mapping[str, Any]:
        group, code = self.groups.get(request.group_id), self._code(node_id, request.group_id)
        responses = []
        for topic in () if group is None or code else request.topics:
            answers = []
            for each in topic.partitions:
                partition = TopicPartition(topic.topic_name, each.partition_index)
                refused = self.refuses_commits.get(partition, NONE)
                if group is not None and refused == NONE:
                    group.committed[partition] = each.start_offset
                answers.append(
                    {
                        "partition_index": each.partition_index,
                        "error_code": int(refused),
                        "error_message": None,
                    }
                )
            responses.append({"topic_name": topic.topic_name, "topic_id": None, "partitions": answers})
        return {"throttle_time": 0, "error_code": code, "error_message": None, "responses": responses}

    def _delete_share_group_offsets(self, node_id: int, request: Any) -> Mapping[str, Any]:
        group, code = self.groups.get(request.group_id), self._code(node_id, request.group_id)
        responses = []
        for topic in () if group is None or code else request.topics:
            offsets = self.groups[request.group_id].committed
            known = [each for each in offsets if each.topic == topic.topic_name]
            for each in known:
                del offsets[each]
            error = int(NONE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            responses.append(
                {"topic_name": topic.topic_name, "topic_id": None, "error_code": error, "error_message": None}
            )
        return {"throttle_time": 0, "error_code": code, "error_message": None, "responses": responses}

    def _streams_group_describe(self, node_id: int, request: Any) -> Mapping[str, Any]:
        """An application that reads ``orders`` and ``NAME-again-repartition``; its readers have tasks."""
        (name,) = request.group_ids
        group = self.groups.get(name)
        code = self._code(node_id, name)
        if group is None or group.kind != "streams":
            code = code or int(ErrorCode.GROUP_ID_NOT_FOUND)
        members = [] if code or group is None else [_streams_member(*each) for each in group.readers.items()]
        first, second = _subtopology("0", source=["orders"]), _subtopology("1", repartition=f"{name}-again")
        described = {
            "error_code": code,
            "error_message": None,
            "group_id": name,
            "group_state": group.state if group else "",
            "group_epoch": 3,
            "assignment_epoch": 2,
            "topology": None if code else {"epoch": 0, "subtopologies": [first, second]},
            "members": members,
            "authorized_operations": 0,
            "topology_description": None,
            "topology_description_status": 0,
            "assignor_name": "sticky",
        }
        return {"throttle_time": 0, "groups": [described]}

    def _offset_delete(self, node_id: int, request: Any) -> Mapping[str, Any]:
        code = self._code(node_id, request.group_id)
        topics = []
        for topic in () if code else request.topics:
            answers = []
            for each in topic.partitions:
                at = TopicPartition(topic.name, each.partition_index)
                refused = int(self.refuses_commits.get(at, NONE))
                if not refused:
                    self.groups[request.group_id].committed.pop(at, None)
                answers.append({"partition_index": each.partition_index, "error_code": refused})
            topics.append({"name": topic.name, "partitions": answers})
        return {"throttle_time": 0, "error_code": code, "topics": topics}

    def _delete_topics(self, node_id: int, request: Any) -> Mapping[str, Any]:
        responses = []
        for topic in request.topics:
            code = NONE if topic.name in self.internal_topics else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            self.internal_topics.discard(topic.name)
            responses.append(
                {"name": topic.name, "topic_id": None, "error_code": int(code), "error_message": None}
            )
        return {"throttle_time": 0, "responses": responses}

    def _delete_groups(self, node_id: int, request: Any) -> Mapping[str, Any]:
        (name,) = request.groups_names
        code = self._code(node_id, name)
        if not code and self.groups[name].readers:
            code = int(ErrorCode.NON_EMPTY_GROUP)
        if not code:
            del self.groups[name]
        return {"throttle_time": 0, "results": [{"group_id": name, "error_code": code}]}


def _classic_member(member_id: str, assignment: dict[str, list[int]]) -> dict[str, Any]:
    data = struct.pack(">hi", 3, len(assignment))
    for topic, partitions in assignment.items():
        data += struct.pack(">h", len(topic)) + topic.encode()
        data += struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return {
        "member_id": member_id,
        "group_instance_id": None,
        "client_id": "app",
        "client_host": "/10.0.0.1",
        "member_metadata": b"",
        "member_assignment": data + struct.pack(">i", -1),
    }


def _share_member(member_id: str, assignment: dict[str, list[int]]) -> dict[str, Any]:
    return {
        "member_id": member_id,
        "rack_id": None,
        "member_epoch": 1,
        "client_id": "app",
        "client_host": "/10.0.0.1",
        "subscribed_topic_names": list(assignment),
        "assignment": {
            "topic_partitions": [
                {"topic_id": None, "topic_name": topic, "partitions": partitions}
                for topic, partitions in assignment.items()
            ]
        },
    }


def _topic_info(name: str) -> dict[str, Any]:
    return {"name": name, "partitions": 2, "replication_factor": 1, "topic_configs": []}


def _subtopology(name: str, *, source: list[str] | None = None, repartition: str = "") -> dict[str, Any]:
    return {
        "subtopology_id": name,
        "source_topics": source or [],
        "repartition_sink_topics": [],
        "state_changelog_topics": [],
        "repartition_source_topics": [_topic_info(f"{repartition}-repartition")] if repartition else [],
    }


def _streams_member(member_id: str, tasks: dict[str, list[int]]) -> dict[str, Any]:
    """Its second task, if it has one, is to be another member's."""
    active = [{"subtopology_id": name, "partitions": numbers} for name, numbers in tasks.items()]
    target = [{"subtopology_id": name, "partitions": numbers[:1]} for name, numbers in tasks.items()]
    return {
        "member_id": member_id,
        "member_epoch": 2,
        "instance_id": None,
        "rack_id": None,
        "client_id": "app",
        "client_host": "/10.0.0.1",
        "topology_epoch": 0,
        "process_id": "process",
        "user_endpoint": None,
        "client_tags": [],
        "task_offsets": [],
        "task_end_offsets": [],
        "assignment": {"active_tasks": active, "standby_tasks": [], "warmup_tasks": []},
        "target_assignment": {"active_tasks": target, "standby_tasks": [], "warmup_tasks": []},
        "is_classic": False,
    }


def _kip_848_member(member_id: str, assignment: dict[str, list[int]]) -> dict[str, Any]:
    assigned = {
        "topic_partitions": [
            {"topic_id": None, "topic_name": topic, "partitions": partitions}
            for topic, partitions in assignment.items()
        ]
    }
    return {
        "member_id": member_id,
        "instance_id": "static",
        "rack_id": None,
        "member_epoch": 1,
        "client_id": "app",
        "client_host": "/10.0.0.1",
        "subscribed_topic_names": list(assignment),
        "subscribed_topic_regex": None,
        "assignment": assigned,
        "target_assignment": assigned,
        "member_type": 1,
    }

"""The records of ``__consumer_offsets`` have Kafka's bytes, and damaged ones are named, never believed.

The golden bytes follow Kafka 4.1's schemas (``group-coordinator/src/main/resources/common/message``); those
of the generated classes of 4.1.0 (``MessageUtil.toVersionPrefixedByteBuffer``) are the same. Those of streams
groups are the bytes of 4.4.0's.
"""

from __future__ import annotations

import struct
import tracemalloc
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from minikafka.errors import InvariantError
from minikafka.protocol.internal import group_records as records
from minikafka.protocol.internal.group_record_codec import (
    SCHEMAS,
    UnreadableRecord,
    decode_by_schema,
    decode_record,
    encode_by_schema,
    encode_record,
)
from minikafka.protocol.internal.group_records import GroupRecord, OffsetCommitKey, OffsetCommitValue

TOPIC_ID = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
ID_BYTES = TOPIC_ID.bytes.hex()
GROUP = "0003 677270"
MEMBER = f"{GROUP} 0002 6d31"
OFFSET_KEY = OffsetCommitKey("grp", "top", 7)
OFFSET_KEY_BYTES = f"0001 {GROUP} 0003 746f70 00000007"
CLASSIC_MEMBER = records.MemberMetadata(
    member_id="m1",
    group_instance_id="i",
    client_id="c",
    client_host="/h",
    rebalance_timeout_ms=300,
    session_timeout_ms=45,
    subscription=b"\1\2",
    assignment=b"\3",
)
CLASSIC_GROUP = records.GroupMetadataValue(
    protocol_type="consumer",
    generation=5,
    protocol="range",
    leader="m1",
    current_state_timestamp_ms=1000,
    members=(CLASSIC_MEMBER,),
)
CLASSIC_MEMBER_BYTES = "0002 6d31 0001 69 0001 63 0002 2f68 0000012c 0000002d 00000002 0102 00000001 03"

GOLDEN = {
    "an offset": (
        GroupRecord(
            OFFSET_KEY,
            OffsetCommitValue(
                offset=258, leader_epoch=3, metadata="hi", commit_timestamp_ms=1000, topic_id=TOPIC_ID
            ),
        ),
        OFFSET_KEY_BYTES,
        f"0004 0000000000000102 00000003 03 6869 00000000000003e8 01 00 10 {ID_BYTES}",
    ),
    "an offset without topic id": (
        GroupRecord(OFFSET_KEY, OffsetCommitValue(offset=258, commit_timestamp_ms=1000)),
        OFFSET_KEY_BYTES,
        "0004 0000000000000102 ffffffff 01 00000000000003e8 00",
    ),
    "an offset that expires": (
        GroupRecord(
            OFFSET_KEY,
            OffsetCommitValue(offset=258, metadata="hi", commit_timestamp_ms=1000, expire_timestamp_ms=2000),
        ),
        OFFSET_KEY_BYTES,
        "0001 0000000000000102 0002 6869 00000000000003e8 00000000000007d0",
    ),
    "a classic group": (
        GroupRecord(records.GroupMetadataKey("grp"), CLASSIC_GROUP),
        f"0002 {GROUP}",
        "0003 0008 636f6e73756d6572 00000005 0005 72616e6765 0002 6d31 00000000000003e8"
        f"00000001 {CLASSIC_MEMBER_BYTES}",
    ),
    "an empty classic group": (
        GroupRecord(
            records.GroupMetadataKey("grp"),
            records.GroupMetadataValue(
                protocol_type="",
                generation=0,
                protocol=None,
                leader=None,
                current_state_timestamp_ms=-1,
                members=(),
            ),
        ),
        f"0002 {GROUP}",
        "0003 0000 00000000 ffff ffff ffffffffffffffff 00000000",
    ),
    "a group epoch": (
        GroupRecord(
            records.ConsumerGroupMetadataKey("grp"),
            records.ConsumerGroupMetadataValue(epoch=9, metadata_hash=77),
        ),
        f"0003 {GROUP}",
        "0000 00000009 01 00 08 000000000000004d",
    ),
    "a group epoch without hash": (
        GroupRecord(records.ConsumerGroupMetadataKey("grp"), records.ConsumerGroupMetadataValue(epoch=9)),
        f"0003 {GROUP}",
        "0000 00000009 00",
    ),
    "no partition metadata": (
        GroupRecord(
            records.ConsumerGroupPartitionMetadataKey("grp"), records.ConsumerGroupPartitionMetadataValue()
        ),
        f"0004 {GROUP}",
        "0000 01 00",
    ),
    "a member": (
        GroupRecord(
            records.ConsumerGroupMemberMetadataKey("grp", "m1"),
            records.ConsumerGroupMemberMetadataValue(
                instance_id="i",
                client_id="c",
                client_host="/h",
                subscribed_topic_names=("top",),
                subscribed_topic_regex="t.*",
                rebalance_timeout_ms=300,
                server_assignor="uniform",
                classic_member_metadata=records.ClassicMemberMetadata(
                    45, (records.ClassicProtocol("range", b"\1\2"),)
                ),
            ),
        ),
        f"0005 {MEMBER}",
        "0000 02 69 00 02 63 03 2f68 02 04 746f70 04 742e2a 0000012c 08 756e69666f726d"
        "01 00 11 01 0000002d 02 06 72616e6765 03 0102 00 00",
    ),
    "a target epoch": (
        GroupRecord(
            records.ConsumerGroupTargetAssignmentMetadataKey("grp"),
            records.ConsumerGroupTargetAssignmentMetadataValue(9),
        ),
        f"0006 {GROUP}",
        "0000 00000009 00",
    ),
    "a target": (
        GroupRecord(
            records.ConsumerGroupTargetAssignmentMemberKey("grp", "m1"),
            records.ConsumerGroupTargetAssignmentMemberValue({TOPIC_ID: frozenset((1, 0))}),
        ),
        f"0007 {MEMBER}",
        f"0000 02 {ID_BYTES} 03 00000000 00000001 00 00",
    ),
    "what a member owns": (
        GroupRecord(
            records.ConsumerGroupCurrentMemberAssignmentKey("grp", "m1"),
            records.ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=9,
                previous_member_epoch=8,
                state=1,
                assigned_partitions={TOPIC_ID: frozenset((0,))},
                partitions_pending_revocation={TOPIC_ID: frozenset((1,))},
            ),
        ),
        f"0008 {MEMBER}",
        f"0000 00000009 00000008 01 02 {ID_BYTES} 02 00000000 00 02 {ID_BYTES} 02 00000001 00 00",
    ),
    "a regular expression": (
        GroupRecord(
            records.ConsumerGroupRegularExpressionKey("grp", "t.*"),
            records.ConsumerGroupRegularExpressionValue(topics=("top",), version=5, timestamp_ms=1000),
        ),
        f"0010 {GROUP} 0003 742e2a",
        "0000 02 04 746f70 0000000000000005 00000000000003e8 00",
    ),
    "a member of a share group": (
        GroupRecord(
            records.ShareGroupMemberMetadataKey("grp", "m1"),
            records.ShareGroupMemberMetadataValue(
                rack_id=None, client_id="c", client_host="/h", subscribed_topic_names=("top",)
            ),
        ),
        f"000a {MEMBER}",
        "0000 00 02 63 03 2f68 02 04 746f70 00",
    ),
    "the epoch of a share group": (
        GroupRecord(
            records.ShareGroupMetadataKey("grp"), records.ShareGroupMetadataValue(epoch=9, metadata_hash=-2)
        ),
        f"000b {GROUP}",
        "0000 00000009 fffffffffffffffe 00",
    ),
    "a target epoch of a share group": (
        GroupRecord(
            records.ShareGroupTargetAssignmentMetadataKey("grp"),
            records.ShareGroupTargetAssignmentMetadataValue(9, 1000),
        ),
        f"000c {GROUP}",
        "0000 00000009 01 00 08 00000000000003e8",
    ),
    "a target of a share group": (
        GroupRecord(
            records.ShareGroupTargetAssignmentMemberKey("grp", "m1"),
            records.ShareGroupTargetAssignmentMemberValue({TOPIC_ID: frozenset((1, 0))}),
        ),
        f"000d {MEMBER}",
        f"0000 02 {ID_BYTES} 03 00000000 00000001 00 00",
    ),
    "what a member shares in": (
        GroupRecord(
            records.ShareGroupCurrentMemberAssignmentKey("grp", "m1"),
            records.ShareGroupCurrentMemberAssignmentValue(
                member_epoch=9, previous_member_epoch=8, assigned_partitions={TOPIC_ID: frozenset((0,))}
            ),
        ),
        f"000e {MEMBER}",
        f"0000 00000009 00000008 00 02 {ID_BYTES} 02 00000000 00 00",
    ),
    "the state of a share group's partitions": (
        GroupRecord(
            records.ShareGroupStatePartitionMetadataKey("grp"),
            records.ShareGroupStatePartitionMetadataValue(
                initializing={TOPIC_ID: records.NamedPartitions("top", frozenset((1,)))},
                initialized={TOPIC_ID: records.NamedPartitions("top", frozenset((0,)))},
                deleting={TOPIC_ID: "old"},
            ),
        ),
        f"000f {GROUP}",
        f"0000 02 {ID_BYTES} 04 746f70 02 00000001 00 02 {ID_BYTES} 04 746f70 02 00000000 00 "
        f"02 {ID_BYTES} 04 6f6c64 00 00",
    ),
    "the epoch of a streams group": (
        GroupRecord(
            records.StreamsGroupMetadataKey("grp"),
            records.StreamsGroupMetadataValue(
                epoch=9,
                metadata_hash=-2,
                validated_topology_epoch=3,
                last_assignment_configs=(("k", "v"),),
            ),
        ),
        f"0011 {GROUP}",
        "000000000009fffffffffffffffe02000400000003010602026b027600",
    ),
    "the epoch of a streams group that has assigned nothing": (
        GroupRecord(records.StreamsGroupMetadataKey("grp"), records.StreamsGroupMetadataValue(epoch=9)),
        f"0011 {GROUP}",
        "0000 00000009 0000000000000000 00",
    ),
    "a member of a streams group": (
        GroupRecord(
            records.StreamsGroupMemberMetadataKey("grp", "m1"),
            records.StreamsGroupMemberMetadataValue(
                instance_id="i",
                client_id="c",
                client_host="/h",
                rebalance_timeout_ms=300,
                topology_epoch=3,
                process_id="p",
                user_endpoint=("e", 40_000),
                client_tags=(("k", "v"),),
            ),
        ),
        f"0013 {MEMBER}",
        "00000269000263032f680000012c0000000302700102659c400002026b02760000",
    ),
    "a member of a streams group that answers no queries": (
        GroupRecord(
            records.StreamsGroupMemberMetadataKey("grp", "m1"),
            records.StreamsGroupMemberMetadataValue(
                rack_id="r",
                client_id="c",
                client_host="/h",
                rebalance_timeout_ms=300,
                topology_epoch=3,
                process_id="p",
            ),
        ),
        f"0013 {MEMBER}",
        "00000002720263032f680000012c000000030270ff0100",
    ),
    "a target epoch of a streams group": (
        GroupRecord(
            records.StreamsGroupTargetAssignmentMetadataKey("grp"),
            records.StreamsGroupTargetAssignmentMetadataValue(9, 1000),
        ),
        f"0014 {GROUP}",
        "00000000000901000800000000000003e8",
    ),
    "a target of a streams group": (
        GroupRecord(
            records.StreamsGroupTargetAssignmentMemberKey("grp", "m1"),
            records.StreamsGroupTargetAssignmentMemberValue(
                active_tasks={"0": frozenset((1, 0))}, warmup_tasks={"1": frozenset((2,))}
            ),
        ),
        f"0015 {MEMBER}",
        "0000020230030000000000000001000102023102000000020000",
    ),
    "the tasks that a member has": (
        GroupRecord(
            records.StreamsGroupCurrentMemberAssignmentKey("grp", "m1"),
            records.StreamsGroupCurrentMemberAssignmentValue(
                member_epoch=9,
                previous_member_epoch=8,
                state=2,
                active_tasks={"0": {0: 7, 1: 9}},
                standby_tasks={"1": frozenset((2,))},
                active_tasks_pending_revocation={"0": {3: 6}},
            ),
        ),
        f"0016 {MEMBER}",
        "0000000000090000000802020230030000000000000001010009030000000700000009"
        "0202310200000002000102023002000000030100050200000006010100",
    ),
    "a topology": (
        GroupRecord(
            records.StreamsGroupTopologyKey("grp"),
            records.StreamsGroupTopologyValue(
                3,
                (
                    records.StreamsSubtopology(
                        subtopology_id="0",
                        source_topics=("in",),
                        source_topic_regex=("x.*",),
                        state_changelog_topics=(records.StreamsTopicInfo("log", 0, 0),),
                        repartition_sink_topics=("out",),
                        repartition_source_topics=(records.StreamsTopicInfo("rep", 4, 3, (("k", "v"),)),),
                        copartition_groups=(records.StreamsCopartitionGroup((0,), (), (0,)),),
                    ),
                ),
            ),
        ),
        f"0017 {GROUP}",
        "0000000000030202300203696e0204782e2a02046c6f67000000000000010002046f75"
        "74020472657000000004000302026b027600000202000001020000000000",
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_a_record_has_kafkas_bytes(name: str) -> None:
    record, key, value = GOLDEN[name]
    expected = (bytes.fromhex(key), bytes.fromhex(value))
    assert encode_record(record) == expected
    assert decode_record(*expected) == record
    tombstone = GroupRecord(record.key, None)
    assert encode_record(tombstone) == (expected[0], None)
    assert decode_record(expected[0], None) == tombstone


MEMBER_START, MEMBER_END = "0002 6d31", "0001 63 0002 2f68"
OLD_MEMBER = "0000002d 00000002 0102 00000001 03"
CLASSIC_START = "0008 636f6e73756d6572 00000005 0005 72616e6765 0002 6d31"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(
            "0000 0000000000000102 0002 6869 00000000000003e8",
            OffsetCommitValue(offset=258, metadata="hi", commit_timestamp_ms=1000),
            id="offset-0",
        ),
        pytest.param(
            "0001 0000000000000102 0002 6869 00000000000003e8 ffffffffffffffff",
            OffsetCommitValue(offset=258, metadata="hi", commit_timestamp_ms=1000),
            id="offset-1",
        ),
        pytest.param(
            "0002 0000000000000102 0002 6869 00000000000003e8",
            OffsetCommitValue(offset=258, metadata="hi", commit_timestamp_ms=1000),
            id="offset-2",
        ),
        pytest.param(
            "0003 0000000000000102 00000003 0002 6869 00000000000003e8",
            OffsetCommitValue(offset=258, leader_epoch=3, metadata="hi", commit_timestamp_ms=1000),
            id="offset-3",
        ),
    ],
)
@pytest.mark.parametrize("record_type", [0, 1])
def test_offsets_of_older_brokers_are_read(record_type: int, value: str, expected: OffsetCommitValue) -> None:
    key = struct.pack(">h", record_type) + bytes.fromhex(OFFSET_KEY_BYTES)[2:]
    assert decode_record(key, bytes.fromhex(value)) == GroupRecord(OFFSET_KEY, expected)


@pytest.mark.parametrize(
    ("version", "value", "lost"),
    [
        (0, f"{CLASSIC_START} 00000001 {MEMBER_START} {MEMBER_END} {OLD_MEMBER}", "rebalance instance time"),
        (1, f"{CLASSIC_START} 00000001 {MEMBER_START} {MEMBER_END} 0000012c {OLD_MEMBER}", "instance time"),
        (
            2,
            f"{CLASSIC_START} 00000000000003e8 00000001 {MEMBER_START} {MEMBER_END} 0000012c {OLD_MEMBER}",
            "instance",
        ),
        (
            4,
            "09 636f6e73756d6572 00000005 06 72616e6765 03 6d31 00000000000003e8 02 03 6d31 02 69 02 63"
            "03 2f68 0000012c 0000002d 03 0102 02 03 00 00",
            "",
        ),
    ],
)
def test_classic_groups_of_other_brokers_are_read(version: int, value: str, lost: str) -> None:
    record = decode_record(bytes.fromhex(f"0002 {GROUP}"), bytes.fromhex(f"{version:04x} {value}"))
    member = records.MemberMetadata(
        member_id="m1",
        group_instance_id=None if "instance" in lost else "i",
        client_id="c",
        client_host="/h",
        rebalance_timeout_ms=45 if "rebalance" in lost else 300,
        session_timeout_ms=45,
        subscription=b"\1\2",
        assignment=b"\3",
    )
    assert record.value == records.GroupMetadataValue(
        protocol_type="consumer",
        generation=5,
        protocol="range",
        leader="m1",
        current_state_timestamp_ms=-1 if "time" in lost else 1000,
        members=(member,),
    )


def test_partition_metadata_of_kafka_3_and_4_0_is_read_over() -> None:
    key = bytes.fromhex(f"0004 {GROUP}")
    value = bytes.fromhex(f"0000 02 {ID_BYTES} 04 746f70 00000002 02 00000001 02 02 72 00 00 00")
    expected = records.ConsumerGroupPartitionMetadataValue()
    assert decode_record(key, value).value == expected


def test_tagged_fields_of_newer_brokers_are_skipped() -> None:
    """KIP-1282 gives a group its creation time, KIP-1263 a target assignment its time."""
    epoch = bytes.fromhex("0000 00000009 02 00 08 000000000000004d 01 08 0000000000000001")
    assert decode_record(bytes.fromhex(f"0003 {GROUP}"), epoch).value == records.ConsumerGroupMetadataValue(
        epoch=9, metadata_hash=77
    )
    offset = bytes.fromhex("0004 0000000000000102 ffffffff 01 00000000000003e8 01 05 01 ff")
    assert decode_record(bytes.fromhex(OFFSET_KEY_BYTES), offset).value == OffsetCommitValue(
        offset=258, commit_timestamp_ms=1000
    )


# Round trips

int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
texts = st.text(max_size=20)
opt_texts = st.none() | texts
blobs = st.binary(max_size=20)
topic_ids = st.uuids(allow_nil=False)
partitions = st.dictionaries(
    topic_ids, st.frozensets(st.integers(0, 2**31 - 1), min_size=1, max_size=4), max_size=3
)
offset_values = st.builds(
    OffsetCommitValue,
    offset=int64s,
    leader_epoch=int32s,
    metadata=texts | st.text("äx", min_size=60, max_size=300),
    commit_timestamp_ms=int64s,
    topic_id=st.none() | topic_ids,
) | st.builds(
    OffsetCommitValue,
    offset=int64s,
    metadata=texts,
    commit_timestamp_ms=int64s,
    expire_timestamp_ms=st.integers(0, 2**63 - 1),
)
group_values = st.builds(
    records.GroupMetadataValue,
    protocol_type=texts,
    generation=int32s,
    protocol=opt_texts,
    leader=opt_texts,
    current_state_timestamp_ms=int64s,
    members=st.lists(
        st.builds(
            records.MemberMetadata,
            member_id=texts,
            group_instance_id=opt_texts,
            client_id=texts,
            client_host=texts,
            rebalance_timeout_ms=st.integers(0, 2**31 - 1),
            session_timeout_ms=int32s,
            subscription=blobs,
            assignment=blobs,
        ),
        max_size=3,
    ).map(tuple),
)
member_values = st.builds(
    records.ConsumerGroupMemberMetadataValue,
    instance_id=opt_texts,
    rack_id=opt_texts,
    client_id=texts,
    client_host=texts,
    subscribed_topic_names=st.lists(texts, max_size=3).map(tuple),
    subscribed_topic_regex=opt_texts,
    rebalance_timeout_ms=int32s,
    server_assignor=opt_texts,
    classic_member_metadata=st.none()
    | st.builds(
        records.ClassicMemberMetadata,
        int32s,
        st.lists(st.builds(records.ClassicProtocol, texts, blobs), max_size=3).map(tuple),
    ),
)
current_values = st.builds(
    records.ConsumerGroupCurrentMemberAssignmentValue,
    member_epoch=int32s,
    previous_member_epoch=int32s,
    state=st.integers(-128, 127),
    assigned_partitions=partitions,
    partitions_pending_revocation=partitions,
)
named_partitions = st.dictionaries(
    topic_ids, st.builds(records.NamedPartitions, texts, st.frozensets(int32s, max_size=3)), max_size=3
)
PAIRS = [
    (st.builds(OffsetCommitKey, texts, texts, int32s), offset_values),
    (st.builds(records.GroupMetadataKey, texts), group_values),
    (
        st.builds(records.ConsumerGroupMetadataKey, texts),
        st.builds(records.ConsumerGroupMetadataValue, epoch=int32s, metadata_hash=int64s),
    ),
    (
        st.builds(records.ConsumerGroupPartitionMetadataKey, texts),
        st.builds(records.ConsumerGroupPartitionMetadataValue),
    ),
    (st.builds(records.ConsumerGroupMemberMetadataKey, texts, texts), member_values),
    (
        st.builds(records.ConsumerGroupTargetAssignmentMetadataKey, texts),
        st.builds(records.ConsumerGroupTargetAssignmentMetadataValue, int32s),
    ),
    (
        st.builds(records.ConsumerGroupTargetAssignmentMemberKey, texts, texts),
        st.builds(records.ConsumerGroupTargetAssignmentMemberValue, partitions),
    ),
    (st.builds(records.ConsumerGroupCurrentMemberAssignmentKey, texts, texts), current_values),
    (
        st.builds(records.ConsumerGroupRegularExpressionKey, texts, texts),
        st.builds(
            records.ConsumerGroupRegularExpressionValue,
            topics=st.lists(texts, max_size=3).map(tuple),
            version=int64s,
            timestamp_ms=int64s,
        ),
    ),
    (
        st.builds(records.ShareGroupMemberMetadataKey, texts, texts),
        st.builds(
            records.ShareGroupMemberMetadataValue,
            rack_id=opt_texts,
            client_id=texts,
            client_host=texts,
            subscribed_topic_names=st.lists(texts, max_size=3).map(tuple),
        ),
    ),
    (
        st.builds(records.ShareGroupMetadataKey, texts),
        st.builds(records.ShareGroupMetadataValue, epoch=int32s, metadata_hash=int64s),
    ),
    (
        st.builds(records.ShareGroupTargetAssignmentMetadataKey, texts),
        st.builds(records.ShareGroupTargetAssignmentMetadataValue, int32s, int64s),
    ),
    (
        st.builds(records.ShareGroupTargetAssignmentMemberKey, texts, texts),
        st.builds(records.ShareGroupTargetAssignmentMemberValue, partitions),
    ),
    (
        st.builds(records.ShareGroupCurrentMemberAssignmentKey, texts, texts),
        st.builds(
            records.ShareGroupCurrentMemberAssignmentValue,
            member_epoch=int32s,
            previous_member_epoch=int32s,
            state=st.integers(-128, 127),
            assigned_partitions=partitions,
        ),
    ),
    (
        st.builds(records.ShareGroupStatePartitionMetadataKey, texts),
        st.builds(
            records.ShareGroupStatePartitionMetadataValue,
            initializing=named_partitions,
            initialized=named_partitions,
            deleting=st.dictionaries(topic_ids, texts, max_size=3),
        ),
    ),
]
group_records = st.one_of([st.builds(GroupRecord, key, st.none() | value) for key, value in PAIRS])


@given(group_records)
def test_what_is_written_is_read_back(record: GroupRecord) -> None:
    key, value = encode_record(record)
    assert decode_record(key, value) == record
    assert decode_record(memoryview(key), None if value is None else memoryview(value)) == record


@given(st.builds(GroupRecord, PAIRS[0][0], st.none() | PAIRS[0][1]))
def test_the_fast_path_of_an_offset_equals_the_slow_one(record: GroupRecord) -> None:
    encoded = encode_by_schema(record)
    assert encode_record(record) == encoded
    assert decode_record(*encoded) == decode_by_schema(*encoded)


# Damage


def outcome(key: bytes | None, value: bytes | None, *, general: bool) -> GroupRecord | str:
    try:
        return decode_by_schema(key, value) if general else decode_record(key, value)
    except UnreadableRecord as error:
        return str(error)


@given(group_records, st.data())
def test_a_cut_or_changed_record_is_unreadable_or_another_record(
    record: GroupRecord, data: st.DataObject
) -> None:
    """Both paths agree on it, whatever it is."""
    key, value = encode_record(record)
    damaged = []
    for part in (key, value or b""):
        changed = bytearray(part[: data.draw(st.integers(0, len(part)))])
        if changed and data.draw(st.booleans()):
            changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
        damaged.append(bytes(changed))
    for candidate in ((damaged[0], value), (key, damaged[1])):
        assert outcome(*candidate, general=False) == outcome(*candidate, general=True)


@given(st.sampled_from([*SCHEMAS, 9, -1]), st.integers(-1, 5), st.binary(max_size=60), st.binary(max_size=60))
@example(1, 4, bytes.fromhex("0000 0000 00000001"), bytes(12) + b"\x01" + bytes(8) + b"\x01\x00\x10")
def test_random_bytes_are_unreadable_or_a_record(
    record_type: int, version: int, key: bytes, value: bytes
) -> None:
    for head in (key, bytes.fromhex(OFFSET_KEY_BYTES)[2:]):
        candidate = (struct.pack(">h", record_type) + head, struct.pack(">h", version) + value)
        assert outcome(*candidate, general=False) == outcome(*candidate, general=True)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (None, None, "a record without a type: it has no key"),
        ("00", None, "a record without a type: its key has 1 bytes"),
        (f"0009 {GROUP}", None, "a record type 9, of group 'grp': this type is not known"),
        ("0009 00ff 67", None, "a record type 9: this type is not known"),
        (f"0002 {GROUP}", "", "a record GroupMetadata, of group 'grp': its value has 0 bytes"),
        (
            f"0002 {GROUP}",
            "0005",
            "a record GroupMetadata, version 5, of group 'grp': this version is not known",
        ),
        (
            OFFSET_KEY_BYTES,
            "0004 0000000000000102",
            "a record OffsetCommit, version 4, of group 'grp': its value cannot be read: it ends too early",
        ),
        (
            "0001 0003 677270 0004 746f70",
            None,
            "a record OffsetCommit, of group 'grp': its key cannot be read: "
            "a string of 4 bytes where 3 remain",
        ),
    ],
)
def test_an_unreadable_record_is_named(key: str | None, value: str | None, message: str) -> None:
    with pytest.raises(UnreadableRecord) as raised:
        decode_record(
            None if key is None else bytes.fromhex(key), None if value is None else bytes.fromhex(value)
        )
    assert str(raised.value).startswith(message)
    assert raised.value.is_of_unknown_type == ("type 9" in message)


def test_lengths_that_lie_reserve_no_memory() -> None:
    """An array of 2³¹−1 members in 40 bytes, a string of 2³¹−1 bytes in 20."""
    members = bytes.fromhex(f"0003 {CLASSIC_START} 00000000000003e8 7fffffff") + bytes(8)
    topics = bytes.fromhex("0000 feffffff07") + bytes(16)
    tracemalloc.start()
    try:
        for key, value in (
            (f"0002 {GROUP}", members),
            (f"0007 {MEMBER}", topics),
            (f"0010 {MEMBER}", topics),
        ):
            with pytest.raises(UnreadableRecord):
                decode_record(bytes.fromhex(key), value)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "value",
    [
        OffsetCommitValue(offset=2**63, commit_timestamp_ms=0),
        OffsetCommitValue(offset=0, commit_timestamp_ms=2**63),
    ],
)
def test_what_does_not_fit_is_our_bug(value: OffsetCommitValue) -> None:
    with pytest.raises(InvariantError, match="OffsetCommitValue"):
        encode_record(GroupRecord(OFFSET_KEY, value))
    with pytest.raises(InvariantError, match=r"OffsetCommitKey.group"):
        encode_record(GroupRecord(OffsetCommitKey("g" * 40_000, "t", 0), None))

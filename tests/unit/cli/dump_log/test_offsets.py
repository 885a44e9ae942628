"""``dump-log --offsets-decoder`` shows the records of ``__consumer_offsets`` as Kafka's tool does.

The expected lines are those of ``DumpLogSegments --offsets-decoder`` of Kafka 4.1.0; of streams
groups, those of the converters of 4.4.0.
"""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path

import msgspec
import pytest

from minikafka.cli.dump_log.command import main
from minikafka.protocol.internal.group_record_codec import encode_record
from minikafka.protocol.internal.group_records import GroupMetadataKey, GroupMetadataValue, GroupRecord
from minikafka.protocol.records.records import ControlRecordType, EndTransactionMarker, Record, build_batch
from tests.unit.protocol.internal.test_group_record_codec import CLASSIC_GROUP, CLASSIC_MEMBER, GOLDEN, GROUP

TOPIC_ID = '"topicId":"AQIDBAUGBwgJCgsMDQ4PEA"'
OFFSET_KEY = '{"type":"1","data":{"group":"grp","topic":"top","partition":7}}'
CLASSIC_KEY = '{"type":"2","data":{"group":"grp"}}'
CLASSIC_START = (
    '{"version":"3","data":{"protocolType":"consumer","generation":5,"protocol":"range","leader":"m1",'
    '"currentStateTimestamp":1000,"members":[{"memberId":"m1","groupInstanceId":"i","clientId":"c",'
    '"clientHost":"/h","rebalanceTimeout":300,"sessionTimeout":45,'
)
SHOWN = {
    "an offset": (
        OFFSET_KEY,
        '{"version":"4","data":{"offset":258,"leaderEpoch":3,"metadata":"hi","commitTimestamp":1000,'
        f"{TOPIC_ID}}}}}",
    ),
    "an offset without topic id": (
        OFFSET_KEY,
        '{"version":"4","data":{"offset":258,"leaderEpoch":-1,"metadata":"","commitTimestamp":1000}}',
    ),
    "an offset that expires": (
        OFFSET_KEY,
        '{"version":"1","data":{"offset":258,"metadata":"hi","commitTimestamp":1000,"expireTimestamp":2000}}',
    ),
    "a classic group": (CLASSIC_KEY, CLASSIC_START + '"subscription":"AQI=","assignment":"Aw=="}]}}'),
    "an empty classic group": (
        CLASSIC_KEY,
        '{"version":"3","data":{"protocolType":"","generation":0,"protocol":null,"leader":null,'
        '"currentStateTimestamp":-1,"members":[]}}',
    ),
    "a group epoch": (
        '{"type":"3","data":{"groupId":"grp"}}',
        '{"version":"0","data":{"epoch":9,"metadataHash":77}}',
    ),
    "a group epoch without hash": (
        '{"type":"3","data":{"groupId":"grp"}}',
        '{"version":"0","data":{"epoch":9}}',
    ),
    "no partition metadata": (
        '{"type":"4","data":{"groupId":"grp"}}',
        '{"version":"0","data":{"topics":[]}}',
    ),
    "a member": (
        '{"type":"5","data":{"groupId":"grp","memberId":"m1"}}',
        '{"version":"0","data":{"instanceId":"i","rackId":null,"clientId":"c","clientHost":"/h",'
        '"subscribedTopicNames":["top"],"subscribedTopicRegex":"t.*","rebalanceTimeoutMs":300,'
        '"serverAssignor":"uniform","classicMemberMetadata":{"sessionTimeoutMs":45,'
        '"supportedProtocols":[{"name":"range","metadata":"AQI="}]}}}',
    ),
    "a target epoch": (
        '{"type":"6","data":{"groupId":"grp"}}',
        '{"version":"0","data":{"assignmentEpoch":9}}',
    ),
    "a target": (
        '{"type":"7","data":{"groupId":"grp","memberId":"m1"}}',
        f'{{"version":"0","data":{{"topicPartitions":[{{{TOPIC_ID},"partitions":[0,1]}}]}}}}',
    ),
    "what a member owns": (
        '{"type":"8","data":{"groupId":"grp","memberId":"m1"}}',
        '{"version":"0","data":{"memberEpoch":9,"previousMemberEpoch":8,"state":1,'
        f'"assignedPartitions":[{{{TOPIC_ID},"partitions":[0]}}],'
        f'"partitionsPendingRevocation":[{{{TOPIC_ID},"partitions":[1]}}]}}}}',
    ),
    "a regular expression": (
        '{"type":"16","data":{"groupId":"grp","regularExpression":"t.*"}}',
        '{"version":"0","data":{"topics":["top"],"version":5,"timestamp":1000}}',
    ),
    "a member of a share group": (
        '{"type":"10","data":{"groupId":"grp","memberId":"m1"}}',
        '{"version":"0","data":{"rackId":null,"clientId":"c","clientHost":"/h","subscribedTopicNames":["top"]}}',
    ),
    "the epoch of a share group": (
        '{"type":"11","data":{"groupId":"grp"}}',
        '{"version":"0","data":{"epoch":9,"metadataHash":-2}}',
    ),
    "a target epoch of a share group": (  # 4.1 does not know the time yet, and leaves it out
        '{"type":"12","data":{"groupId":"grp"}}',
        '{"version":"0","data":{"assignmentEpoch":9,"assignmentTimestamp":1000}}',
    ),
    "a target of a share group": (
        '{"type":"13","data":{"groupId":"grp","memberId":"m1"}}',
        f'{{"version":"0","data":{{"topicPartitions":[{{{TOPIC_ID},"partitions":[0,1]}}]}}}}',
    ),
    "what a member shares in": (
        '{"type":"14","data":{"groupId":"grp","memberId":"m1"}}',
        '{"version":"0","data":{"memberEpoch":9,"previousMemberEpoch":8,"state":0,'
        f'"assignedPartitions":[{{{TOPIC_ID},"partitions":[0]}}]}}}}',
    ),
    "the state of a share group's partitions": (
        '{"type":"15","data":{"groupId":"grp"}}',
        f'{{"version":"0","data":{{"initializingTopics":[{{{TOPIC_ID},"topicName":"top","partitions":[1]}}],'
        f'"initializedTopics":[{{{TOPIC_ID},"topicName":"top","partitions":[0]}}],'
        f'"deletingTopics":[{{{TOPIC_ID},"topicName":"old"}}]}}}}',
    ),
    "the epoch of a streams group": (
        '{"type":"17","data":{"groupId":"grp"}}',
        '{"version":"0","data":{"epoch":9,"metadataHash":-2,"validatedTopologyEpoch":3,"lastAssig'
        'nmentConfigs":[{"key":"k","value":"v"}]}}',
    ),
    "the epoch of a streams group that has assigned nothing": (
        '{"type":"17","data":{"groupId":"grp"}}',
        '{"version":"0","data":{"epoch":9,"metadataHash":0}}',
    ),
    "a member of a streams group": (
        '{"type":"19","data":{"groupId":"grp","memberId":"m1"}}',
        '{"version":"0","data":{"instanceId":"i","rackId":null,"clientId":"c","clientHost":"/h","'
        'rebalanceTimeoutMs":300,"topologyEpoch":3,"processId":"p","userEndpoint":{"host":"e","po'
        'rt":40000},"clientTags":[{"key":"k","value":"v"}]}}',
    ),
    "a member of a streams group that answers no queries": (
        '{"type":"19","data":{"groupId":"grp","memberId":"m1"}}',
        '{"version":"0","data":{"instanceId":null,"rackId":"r","clientId":"c","clientHost":"/h","'
        'rebalanceTimeoutMs":300,"topologyEpoch":3,"processId":"p","userEndpoint":null,"clientTag'
        's":[]}}',
    ),
    "a target epoch of a streams group": (
        '{"type":"20","data":{"groupId":"grp"}}',
        '{"version":"0","data":{"assignmentEpoch":9,"assignmentTimestamp":1000}}',
    ),
    "a target of a streams group": (
        '{"type":"21","data":{"groupId":"grp","memberId":"m1"}}',
        '{"version":"0","data":{"activeTasks":[{"subtopologyId":"0","partitions":[0,1]}],"standby'
        'Tasks":[],"warmupTasks":[{"subtopologyId":"1","partitions":[2]}]}}',
    ),
    "the tasks that a member has": (
        '{"type":"22","data":{"groupId":"grp","memberId":"m1"}}',
        '{"version":"0","data":{"memberEpoch":9,"previousMemberEpoch":8,"state":2,"activeTasks":['
        '{"subtopologyId":"0","partitions":[0,1],"assignmentEpochs":[7,9]}],"standbyTasks":[{"sub'
        'topologyId":"1","partitions":[2]}],"warmupTasks":[],"activeTasksPendingRevocation":[{"su'
        'btopologyId":"0","partitions":[3],"assignmentEpochs":[6]}],"standbyTasksPendingRevocatio'
        'n":[],"warmupTasksPendingRevocation":[]}}',
    ),
    "a topology": (
        '{"type":"23","data":{"groupId":"grp"}}',
        '{"version":"0","data":{"epoch":3,"subtopologies":[{"subtopologyId":"0","sourceTopics":["'
        'in"],"sourceTopicRegex":["x.*"],"stateChangelogTopics":[{"name":"log","partitions":0,"re'
        'plicationFactor":0,"topicConfigs":[]}],"repartitionSinkTopics":["out"],"repartitionSourc'
        'eTopics":[{"name":"rep","partitions":4,"replicationFactor":3,"topicConfigs":[{"key":"k",'
        '"value":"v"}]}],"copartitionGroups":[{"sourceTopics":[0],"sourceTopicRegex":[],"repartit'
        'ionSourceTopics":[0]}]}]}}',
    ),
}


def write(directory: Path, *pairs: tuple[bytes | None, bytes | None]) -> Path:
    """A segment with these keys and values."""
    path = directory / "00000000000000000000.log"
    records = [Record(i, 1000, key, value, ()) for i, (key, value) in enumerate(pairs)]
    path.write_bytes(build_batch(records))
    return path


def shown(text: str) -> list[tuple[str, str]]:
    """Key and value of each line of a record."""
    return re.findall(r"^\| .* key: (.*) payload: (.*)$", text, re.MULTILINE)


def string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


@pytest.mark.parametrize("name", GOLDEN)
def test_a_record_is_shown_as_kafka_shows_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    _, key, value = GOLDEN[name]
    path = write(tmp_path, (bytes.fromhex(key), bytes.fromhex(value)), (bytes.fromhex(key), None))
    assert main(["--offsets-decoder", str(path)]) == 0
    key_shown, value_shown = SHOWN[name]
    assert shown(capsys.readouterr().out) == [(key_shown, value_shown), (key_shown, "<DELETE>")]
    assert main(["--offsets-decoder", "--json", str(path)]) == 0
    items = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    expected = (json.loads(key_shown), json.loads(value_shown))
    assert [(item["key"], item["value"]) for item in items if item["type"] == "record"] == [
        expected,
        (expected[0], None),
    ]


TOPIC_0_AND_1 = string("top") + struct.pack(">3i", 2, 0, 1)
SUBSCRIPTION = struct.pack(">i", 1) + string("top") + struct.pack(">i", -1)
OWNED = struct.pack(">i", 1) + TOPIC_0_AND_1
OWNED_SHOWN = '"ownedPartitions":[{"topic":"top","partitions":[0,1]}]'


@pytest.mark.parametrize(
    ("subscription", "expected"),
    [
        (b"\0\0" + SUBSCRIPTION, '{"topics":["top"],"userData":null}'),
        (b"\0\1" + SUBSCRIPTION + OWNED, f'{{"topics":["top"],"userData":null,{OWNED_SHOWN}}}'),
        (
            b"\0\2" + SUBSCRIPTION + OWNED + struct.pack(">i", 5),
            f'{{"topics":["top"],"userData":null,{OWNED_SHOWN},"generationId":5}}',
        ),
        (
            b"\0\3" + SUBSCRIPTION + OWNED + struct.pack(">i", 5) + string("rack"),
            f'{{"topics":["top"],"userData":null,{OWNED_SHOWN},"generationId":5,"rackId":"rack"}}',
        ),
        (b"", '""'),
        (b"\0\0\x7f\xff\xff\xff", '"AAB/////"'),
    ],
)
def test_what_consumers_tell_each_other_is_decoded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], subscription: bytes, expected: str
) -> None:
    assignment = b"\0\3" + struct.pack(">i", 1) + TOPIC_0_AND_1 + struct.pack(">i", 2) + b"ud"
    member = msgspec.structs.replace(CLASSIC_MEMBER, subscription=subscription, assignment=assignment)
    assert main(["--offsets-decoder", str(write(tmp_path, group_of(member)))]) == 0
    assigned = '{"assignedPartitions":[{"topic":"top","partitions":[0,1]}],"userData":"dWQ="}'
    assert shown(capsys.readouterr().out) == [
        (CLASSIC_KEY, f'{CLASSIC_START}"subscription":{expected},"assignment":{assigned}}}]}}}}')
    ]


def group_of(member: object) -> tuple[bytes, bytes | None]:
    value = msgspec.structs.replace(CLASSIC_GROUP, members=(member,))
    assert isinstance(value, GroupMetadataValue)
    return encode_record(GroupRecord(GroupMetadataKey("grp"), value))


def test_what_cannot_be_decoded_is_shown_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A type of a newer broker is no damage; a record that is not what its version says is."""
    newer = (bytes.fromhex(f"0063 {GROUP}"), b"v")
    assert main(["--offsets-decoder", str(write(tmp_path, newer))]) == 0
    text = capsys.readouterr().out
    assert shown(text) == [
        (r"\x00c\x00\x03grp", "v undecoded: a record type 99, of group 'grp': this type is not known")
    ]
    damaged = write(tmp_path, (bytes.fromhex(f"0002 {GROUP}"), b"\0\3"), (None, b"v"), (b"\xff", None))
    assert main(["--offsets-decoder", str(damaged)]) == 1
    text = capsys.readouterr().out
    assert shown(text) == [(r"\x00\x02\x00\x03grp", r"\x00\x03"), ("null", "v")]
    assert "offset 0 cannot be decoded: a record GroupMetadata, version 3, of group 'grp'" in text
    assert "offset 1 cannot be decoded: a record without a type: it has no key" in text
    assert "keyBase64: /w== payload: null" in text


def test_a_marker_of_a_transaction_is_no_record_of_a_group(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    marker = EndTransactionMarker(ControlRecordType.COMMIT, 5)
    path = tmp_path / "00000000000000000000.log"
    record = Record(0, 1000, marker.key(), marker.value(), ())
    path.write_bytes(build_batch([record], control=True, transactional=True, producer_id=7, producer_epoch=0))
    assert main(["--offsets-decoder", str(path)]) == 0
    assert "endTxnMarker: COMMIT" in capsys.readouterr().out


def test_it_is_for_showing_not_for_verifying(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--offsets-decoder", "--verify", str(tmp_path)]) == 2
    assert "--verify reads everything" in capsys.readouterr().err

"""Groups of members that say by heartbeats what they are: described a few members at a time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from minikafka.coordinator.group.messages import DescribedShareGroup, DescribedShareMember
from minikafka.errors import ErrorCode
from minikafka.server.apis.shared.coordinator_requests import MEMBERS_A_STEP, describe_groups
from minikafka.steps import finish

MEMBERS = 10 * MEMBERS_A_STEP


def member(number: int) -> DescribedShareMember:
    return DescribedShareMember(
        member_id=f"m{number}",
        rack_id=None,
        member_epoch=1,
        client_id="client",
        client_host="/127.0.0.1",
        subscribed_topic_names=(),
        assignment={},
    )


def test_a_large_group_holds_up_nothing_else() -> None:
    group = DescribedShareGroup(group_id="g", members=tuple(map(member, range(MEMBERS))))
    written: list[str] = []

    def write(each: DescribedShareMember) -> dict[str, Any]:
        written.append(each.member_id)
        return {"member_id": each.member_id}

    services: Any = SimpleNamespace(authorizer=None, groups=SimpleNamespace(shard_of=lambda group_id: None))
    context: Any = None
    request = SimpleNamespace(group_ids=["g", "g", ""], include_authorized_operations=False)
    steps = describe_groups(
        services,
        context,
        request,
        kind=DescribedShareGroup,
        describe=lambda shard, group_id: group,
        topics=lambda found: (),
        member=write,
    )
    for done in range(1, 11):
        next(steps)
        assert len(written) == done * MEMBERS_A_STEP
    found, unnamed = finish(steps)["groups"]
    assert [each["member_id"] for each in found["members"]] == [f"m{number}" for number in range(MEMBERS)]
    assert unnamed["error_code"] is ErrorCode.INVALID_GROUP_ID

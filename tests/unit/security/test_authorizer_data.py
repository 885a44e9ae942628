"""Who may do what: Kafka's rules one by one, and our index against a plain reading of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from minikafka.security.acl import (
    AccessControlEntry,
    AccessControlEntryFilter,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    KafkaPrincipal,
    PatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from minikafka.security.authorizer_data import AuthorizerData, Basis
from minikafka.steps import finish

READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
ALICE, BOB, EVERYBODY, HOST = "User:alice", "User:bob", "User:*", "10.0.0.1"


def acl(
    name: str = "orders",
    operation: AclOperation = READ,
    *,
    who: str = ALICE,
    host: str = "*",
    permission: AclPermissionType = ALLOW,
    kind: PatternType = LITERAL,
    resource: ResourceType = TOPIC,
) -> AclBinding:
    return AclBinding(
        ResourcePattern(resource, name, kind), AccessControlEntry(who, host, operation, permission)
    )


def data_with(*bindings: AclBinding, everyone: bool = False) -> AuthorizerData:
    data = AuthorizerData([KafkaPrincipal("User", "root")], allows_everyone_if_no_acl_found=everyone)
    for pattern in {each.pattern for each in bindings}:
        data.replace(pattern, [each.entry for each in bindings if each.pattern == pattern])
    return data


def allows(
    data: AuthorizerData, operation: AclOperation = READ, name: str = "orders", who: str = ALICE
) -> bool:
    return data.decide(who, HOST, operation, TOPIC, name).is_allowed


def test_nobody_may_do_anything_unless_an_acl_says_so() -> None:
    data = data_with()
    assert not allows(data)
    data = data_with(acl())
    assert allows(data)
    assert not allows(data, who=BOB)
    assert not allows(data, name="orders2")
    assert not allows(data, WRITE)
    assert not data.decide(ALICE, HOST, READ, GROUP, "orders").is_allowed


def test_a_super_user_may_do_what_is_denied_to_everybody() -> None:
    data = data_with(acl(who=EVERYBODY, permission=DENY, operation=AclOperation.ALL))
    decision = data.decide("User:root", HOST, READ, TOPIC, "orders")
    assert (decision.is_allowed, decision.basis, str(decision)) == (True, Basis.SUPER_USER, "SuperUser")
    assert data.is_allowed_on_any("User:root", HOST, WRITE, TOPIC)


@pytest.mark.parametrize(
    "denial",
    [
        acl(permission=DENY),
        acl(permission=DENY, operation=AclOperation.ALL),
        acl(permission=DENY, who=EVERYBODY),
        acl(permission=DENY, host=HOST),
        acl("*", permission=DENY),
        acl("ord", permission=DENY, kind=PREFIXED),
        acl("orders", permission=DENY, kind=PREFIXED),
    ],
)
def test_a_denial_decides_however_many_allow(denial: AclBinding) -> None:
    allowing = [acl(), acl("*"), acl("o", kind=PREFIXED), acl(who=EVERYBODY, operation=AclOperation.ALL)]
    assert allows(data_with(*allowing))
    data = data_with(*allowing, denial)
    assert not allows(data)
    assert data.decide(ALICE, HOST, READ, TOPIC, "orders").binding == denial


@pytest.mark.parametrize(
    "denial",
    [
        acl(permission=DENY, who=BOB),
        acl(permission=DENY, operation=WRITE),
        acl(permission=DENY, host="10.0.0.2"),
        acl("order", permission=DENY),
        acl("orders-", permission=DENY, kind=PREFIXED),
        acl(permission=DENY, resource=GROUP),
    ],
)
def test_a_denial_of_something_else_does_not_matter(denial: AclBinding) -> None:
    assert allows(data_with(acl(), denial))


def test_what_is_allowed_implies_describe_and_what_is_denied_does_not() -> None:
    for operation in (READ, WRITE, AclOperation.DELETE, AclOperation.ALTER, AclOperation.ALL, DESCRIBE):
        assert allows(data_with(acl(operation=operation)), DESCRIBE), operation
    for operation in (AclOperation.CREATE, AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS):
        assert not allows(data_with(acl(operation=operation)), DESCRIBE), operation
    assert allows(data_with(acl(operation=AclOperation.ALTER_CONFIGS)), AclOperation.DESCRIBE_CONFIGS)
    assert not allows(data_with(acl(operation=AclOperation.DESCRIBE_CONFIGS)), AclOperation.ALTER_CONFIGS)
    assert not allows(data_with(acl(operation=AclOperation.ALTER)), AclOperation.DESCRIBE_CONFIGS)
    assert allows(data_with(acl(operation=WRITE), acl(operation=READ, permission=DENY)), DESCRIBE)


def test_everyone_may_use_what_no_acl_speaks_of_if_that_is_configured() -> None:
    data = data_with(acl(who=BOB), acl("logs-", who=BOB, kind=PREFIXED), everyone=True)
    assert str(data.decide(ALICE, HOST, READ, TOPIC, "other")) == "DefaultAllow"
    assert str(data.decide(ALICE, HOST, READ, TOPIC, "orders")) == "DefaultDeny"
    assert not allows(data, name="logs-1")
    assert not allows(data_with(acl("*", who=BOB), everyone=True), name="other")


def test_the_rule_that_decides_is_told_as_kafka_tells_it() -> None:
    data = data_with(acl("ord", operation=AclOperation.ALL, kind=PREFIXED))
    assert str(data.decide(ALICE, HOST, DESCRIBE, TOPIC, "orders")) == (
        "MatchingAcl(acl=StandardAcl(resourceType=TOPIC, resourceName=ord, patternType=PREFIXED, "
        "principal=User:alice, host=*, operation=ALL, permissionType=ALLOW))"
    )


def test_cve_2024_27309_removing_one_acl_of_a_pattern_leaves_the_others_in_force() -> None:
    """CVE-2024-27309: the removal of one took others with it."""
    allowing, denying = acl(), acl(who=BOB, permission=DENY)
    data = data_with(allowing, denying, acl(who=EVERYBODY))
    assert not allows(data, who=BOB)
    data.replace(allowing.pattern, [denying.entry, acl(who=EVERYBODY).entry])
    assert not allows(data, who=BOB)
    assert allows(data, who=ALICE)  # as everybody
    data.replace(allowing.pattern, [denying.entry])
    assert not allows(data, who=ALICE) and not allows(data, who=BOB)
    assert data.acl_count == 1


class CountingName(str):
    """A name that counts how often parts of it are looked up."""

    cuts = 0

    def __getitem__(self, key: object) -> str:
        CountingName.cuts += 1
        return super().__getitem__(key)  # type: ignore[index]


def test_the_work_does_not_grow_with_acls_about_others() -> None:
    others = [acl("x" * (length + 1), who=f"User:u{length}", kind=PREFIXED) for length in range(200)]
    mine = [acl("ord", kind=PREFIXED), acl("orders")]
    data = data_with(*others, *mine)
    CountingName.cuts = 0
    assert data.decide(ALICE, HOST, READ, TOPIC, CountingName("orders")).is_allowed
    assert CountingName.cuts == 1


# A plain reading of Kafka's rules, against which everything is held.

NAMES = ["*", "a", "ab", "abc", "b"]
WHO = [ALICE, BOB, EVERYBODY]
HOSTS = ["*", HOST, "10.0.0.2"]
OPERATIONS = [
    AclOperation.ALL,
    READ,
    WRITE,
    DESCRIBE,
    AclOperation.ALTER,
    AclOperation.ALTER_CONFIGS,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.CREATE,
]
IMPLIED_BY = {
    DESCRIBE: {DESCRIBE, READ, WRITE, AclOperation.DELETE, AclOperation.ALTER},
    AclOperation.DESCRIBE_CONFIGS: {AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS},
}

patterns = st.builds(
    ResourcePattern,
    st.sampled_from([TOPIC, GROUP]),
    st.sampled_from(NAMES),
    st.sampled_from([LITERAL, PREFIXED]),
)
entries = st.builds(
    AccessControlEntry,
    st.sampled_from(WHO),
    st.sampled_from(HOSTS),
    st.sampled_from(OPERATIONS),
    st.sampled_from([ALLOW, DENY]),
)


def matches(pattern: ResourcePattern, resource: ResourceType, name: str) -> bool:
    if pattern.resource_type != resource:
        return False
    if pattern.pattern_type == PREFIXED:
        return name.startswith(pattern.name)
    return pattern.name in (name, "*")


def reference(
    acls: Iterable[AclBinding],
    who: str,
    host: str,
    operation: AclOperation,
    resource: ResourceType,
    name: str,
    *,
    everyone: bool,
) -> bool:
    about = [each for each in acls if matches(each.pattern, resource, name)]
    if not about:
        return everyone
    mine = [
        each.entry
        for each in about
        if each.entry.principal in (who, EVERYBODY) and each.entry.host in (host, "*")
    ]
    if any(e.permission_type == DENY and e.operation in (operation, AclOperation.ALL) for e in mine):
        return False
    enough = IMPLIED_BY.get(operation, {operation}) | {AclOperation.ALL}
    return any(e.permission_type == ALLOW and e.operation in enough for e in mine)


def reference_on_any(
    acls: Iterable[AclBinding], who: str, host: str, operation: AclOperation, resource: ResourceType
) -> bool:
    """Of ``Authorizer.authorizeByResourceType``'s words: an allowing pattern that no denying one covers."""
    mine = [
        each
        for each in acls
        if each.pattern.resource_type == resource
        and each.entry.principal in (who, EVERYBODY)
        and each.entry.host in (host, "*")
        and each.entry.operation in (operation, AclOperation.ALL)
    ]
    denied = {each.pattern for each in mine if each.entry.permission_type == DENY}
    if ResourcePattern(resource, "*", LITERAL) in denied:
        return False

    def covers(denying: ResourcePattern, allowing: ResourcePattern) -> bool:
        if denying.pattern_type == PREFIXED:
            is_everything = allowing.pattern_type == LITERAL and allowing.name == "*"
            return not is_everything and allowing.name.startswith(denying.name)
        return allowing == denying

    return any(
        each.entry.permission_type == ALLOW and not any(covers(no, each.pattern) for no in denied)
        for each in mine
    )


class ChangingAcls(RuleBasedStateMachine):
    """ACLs come and go, and after each change every decision is the plain reading's."""

    def __init__(self) -> None:
        super().__init__()
        self.acls: set[AclBinding] = set()
        self.data = AuthorizerData()
        self.generous = AuthorizerData(allows_everyone_if_no_acl_found=True)

    def _put(self, pattern: ResourcePattern) -> None:
        entries = [each.entry for each in self.acls if each.pattern == pattern]
        for data in (self.data, self.generous):
            data.replace(pattern, entries)

    @rule(pattern=patterns, some=st.lists(entries, min_size=1, max_size=4))
    def add(self, pattern: ResourcePattern, some: list[AccessControlEntry]) -> None:
        self.acls |= {AclBinding(pattern, entry) for entry in some}
        self._put(pattern)

    @rule(data=st.data())
    def remove_one(self, data: st.DataObject) -> None:
        if self.acls:
            gone = data.draw(st.sampled_from(sorted(self.acls)))
            self.acls.remove(gone)
            self._put(gone.pattern)

    @rule(pattern=patterns)
    def remove_all_of_a_pattern(self, pattern: ResourcePattern) -> None:
        self.acls = {each for each in self.acls if each.pattern != pattern}
        self._put(pattern)

    @invariant()
    def decisions_are_kafkas(self) -> None:
        assert self.data.acl_count == len(self.acls)
        questions = itertools.product(
            [ALICE, "User:carol"],
            [HOST],
            [READ, DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.CREATE],
            [TOPIC, GROUP],
        )
        for who, host, operation, resource in questions:
            for name in ("a", "abcd", "b", "zz"):
                for data, everyone in ((self.data, False), (self.generous, True)):
                    decision = data.decide(who, host, operation, resource, name)
                    assert decision.is_allowed == reference(
                        self.acls, who, host, operation, resource, name, everyone=everyone
                    )
                    if decision.basis is Basis.ACL:
                        assert decision.binding in self.acls
            assert self.data.is_allowed_on_any(who, host, operation, resource) == reference_on_any(
                self.acls, who, host, operation, resource
            )


TestChangingAcls = ChangingAcls.TestCase
TestChangingAcls.settings = settings(max_examples=60, stateful_step_count=12, deadline=None)


filters = st.builds(
    AclBindingFilter,
    st.builds(
        ResourcePatternFilter,
        st.sampled_from([ResourceType.ANY, TOPIC, GROUP]),
        st.none() | st.sampled_from([*NAMES, "abcd"]),
        st.sampled_from([PatternType.ANY, PatternType.MATCH, LITERAL, PREFIXED]),
    ),
    st.builds(
        AccessControlEntryFilter,
        st.none() | st.sampled_from(WHO),
        st.none() | st.sampled_from(HOSTS),
        st.sampled_from([AclOperation.ANY, *OPERATIONS]),
        st.sampled_from([AclPermissionType.ANY, ALLOW, DENY]),
    ),
)


@given(st.sets(st.builds(AclBinding, patterns, entries), max_size=12), filters)
def test_a_filter_finds_what_it_matches(acls: set[AclBinding], wanted: AclBindingFilter) -> None:
    found = finish(data_with(*acls).matching(wanted))
    assert sorted(found) == sorted(
        each for each in acls if wanted.pattern.matches(each.pattern) and wanted.entry.matches(each.entry)
    )


def test_match_finds_all_that_is_said_of_a_resource() -> None:
    said = [acl("orders"), acl("*"), acl("ord", kind=PREFIXED), acl("orders", kind=PREFIXED)]
    data = data_with(*said, acl("order"), acl("orders-", kind=PREFIXED), acl("orders", resource=GROUP))
    wanted = AclBindingFilter(ResourcePatternFilter(TOPIC, "orders", PatternType.MATCH))
    assert sorted(finish(data.matching(wanted))) == sorted(said)
    exactly = AclBindingFilter(ResourcePatternFilter(TOPIC, "orders", PatternType.ANY))
    assert sorted(finish(data.matching(exactly))) == sorted([said[0], said[3]])

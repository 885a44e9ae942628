"""Many filters at once, against trying one after the other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from minikafka.security.acl import AclBinding, AclBindingFilter, AclFilters, ResourcePatternFilter
from tests.unit.security.test_authorizer_data import acl, entries, filters, patterns


@given(st.lists(filters, max_size=12), st.builds(AclBinding, patterns, entries))
def test_the_first_filter_that_finds_an_acl_is_found(wanted: list[AclBindingFilter], one: AclBinding) -> None:
    together = AclFilters()
    for each in wanted:
        together.add(each)
    pattern, entry = one
    places = (
        place
        for place, each in enumerate(wanted)
        if each.pattern.matches(pattern) and each.entry.matches(entry)
    )
    assert together.first(pattern, entry) == next(places, None)


def test_filters_of_other_principals_are_not_tried() -> None:
    """The attack: thousands of them, each about every ACL."""
    together, tried = AclFilters(), []

    class Counting(str):
        def __eq__(self, other: object) -> bool:
            tried.append(other)
            return super().__eq__(other)

        __hash__ = str.__hash__

    for each in range(1_000):
        whose = AclBindingFilter()
        together.add(whose._replace(entry=whose.entry._replace(principal=Counting(f"User:{each}"))))
    together.add(AclBindingFilter(ResourcePatternFilter(name="orders")))
    tried.clear()
    assert together.first(*acl("orders")) == 1_000
    assert len(tried) < 100

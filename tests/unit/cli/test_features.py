"""``minikafka features``: what is refused before a broker is asked."""

from __future__ import annotations

import pytest

from minikafka.cli.features import levels_of, main


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["upgrade", "--feature", "group.version"], "--feature group.version: must be NAME=LEVEL"),
        (["disable", "--feature", "group.version=0"], "--feature group.version=0: must be NAME"),
        (["upgrade", "--feature", "=1"], "--feature =1: must be NAME=LEVEL"),
        (["upgrade", "--feature", "a=-1"], "the level must be a number from 0 to 32767"),
        (["upgrade", "--feature", "a=99999"], "the level must be a number from 0 to 32767"),
        (["upgrade", "--feature", "a=1", "--feature", "a=2"], "a is named twice"),
    ],
)
def test_what_is_no_level(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


def test_levels_as_they_are_written() -> None:
    assert levels_of(["group.version=1", "share.version=0"], has_levels=True) == {
        "group.version": 1,
        "share.version": 0,
    }
    assert levels_of(["group.version"], has_levels=False) == {"group.version": 0}

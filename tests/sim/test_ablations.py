"""The ablations fit the code, and the simulation finds defects. All of them, over many seeds, are tried with
``python -m tests.sim.ablations``."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.sim import ablations
from tests.sim.ablations import ROOT, Ablation, PatchError, apply, load, names
from tests.sim.ablations.__main__ import seeds_left, try_ablation
from tests.sim.ablations.results import (
    Result,
    patch_crc,
    read_results,
    what_was_broken,
    write_results,
)


def _copy_what_it_changes(ablation: Ablation, directory: Path) -> None:
    for name in ablation.files:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, directory / name)


@pytest.mark.parametrize("name", names())
def test_a_patch_fits_the_code_and_leaves_python(name: str, tmp_path: Path) -> None:
    ablation = load(name)
    _copy_what_it_changes(ablation, tmp_path)
    apply(ablation, tmp_path)
    assert ablation.story and ablation.files
    for changed in ablation.files:
        assert (tmp_path / changed).read_text() != (ROOT / changed).read_text()


def test_a_patch_that_does_not_fit_is_an_error(tmp_path: Path) -> None:
    ablation = load("acknowledged-before-replicated")
    _copy_what_it_changes(ablation, tmp_path)
    apply(ablation, tmp_path)
    with pytest.raises(PatchError, match=r"acknowledged-before-replicated\.diff does not apply"):
        apply(ablation, tmp_path)


@pytest.mark.parametrize(
    ("name", "first"),
    # Of the latter, seed 4 finds only that no producer can write any more, after a minute of CPU time.
    [("duplicate-sequence-accepted", 0), ("acknowledged-before-replicated", 10)],
)
def test_a_defect_is_found(name: str, first: int) -> None:
    result = try_ablation(load(name), first, first + 4)
    assert result.is_found, result


def test_a_story_is_told_when_no_seed_has_failed() -> None:
    ablation = load("delete-records-beyond-high-watermark")
    result = try_ablation(ablation, 0, -1)
    assert result.is_of_a_story and result.scenario in ablation.stories, result


def test_a_result_is_of_the_lines_wherever_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ablation = load("duplicate-sequence-accepted")
    text = ablation.path.read_text()
    monkeypatch.setattr(ablations, "HERE", tmp_path)
    crcs = []
    for each in (text, text.replace("append.py", "other.py"), f"More. {text}", text.replace("<=", "<")):
        ablation.path.write_text(each)
        crcs.append(patch_crc(ablation))
    assert crcs[0] == crcs[1] == crcs[2] != crcs[3]


def test_a_run_goes_on_where_the_one_before_ended() -> None:
    ablation = load("duplicate-sequence-accepted")
    result = Result(name=ablation.name, patch=patch_crc(ablation), seeds=26)
    assert seeds_left(ablation, None, 0, 300) == range(301)
    assert seeds_left(ablation, result, 0, 300) == range(26, 301)
    assert not seeds_left(ablation, result, 0, 25)
    assert not seeds_left(ablation, replace(result, scenario="faults"), 0, 300), "it is found"
    assert seeds_left(ablation, replace(result, patch=0), 0, 300) == range(301), "it was another patch"


def test_results_are_kept(tmp_path: Path) -> None:
    results = [
        Result(name="b", patch=1, seeds=3, scenario="faults", error="I1"),
        Result(name="a", patch=2, seeds=9),
    ]
    assert read_results(tmp_path / "results.jsonl") == {}
    write_results(results, tmp_path / "results.jsonl")
    assert read_results(tmp_path / "results.jsonl") == {each.name: each for each in results}


@pytest.mark.parametrize(
    ("error", "broken"),
    [
        (
            "InvariantError: clients saw: 9 operations: 2 × unseen, 1 × lost write, 3 × write cycle | unseen",
            "lost write, unseen",
        ),
        ("InvariantError: I3: t-0 on broker 1 fell", "I3"),
        ("TimeoutError: not within 30000 ms", "TimeoutError"),
        ("minikafka.errors.KafkaError: UNKNOWN", "KafkaError"),
        ("assert 1 == 2", "AssertionError"),
    ],
)
def test_a_result_says_what_was_broken(error: str, broken: str) -> None:
    assert what_was_broken(Result(name="a", patch=0, seeds=1, scenario="faults", error=error)) == broken

"""The ablations fit the code, and the simulation finds defects. All of them, over many seeds, are tried with
``python -m tests.sim.ablations``."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.sim.ablations import ROOT, Ablation, PatchError, apply, load, names
from tests.sim.ablations.__main__ import try_ablation


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


@pytest.mark.parametrize("name", ["duplicate-sequence-accepted", "acknowledged-before-replicated"])
def test_a_defect_is_found(name: str) -> None:
    verdict = try_ablation(load(name), 0, 5)
    assert verdict.seed is not None, verdict

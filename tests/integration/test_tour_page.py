"""The page of ``minikafka tour --html``, as Chromium shows it: what a reader does with keys and eyes."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from minikafka.cli.tour import command
from tests.integration.support.chromium import distinct_lines, show

pytestmark = [
    pytest.mark.minikafka_only,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not there"),
]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tour") / "tour.html"
    assert command.main(["lost-record", "diverged-logs", "--html", str(path)]) == 0
    return path


def pressing(page: Path, *keys: str) -> Path:
    """The same page, with a reader who presses these keys. Their script is not in the page's policy, so that
    is gone."""
    html = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text("utf-8"))
    presses = "".join(
        f'document.dispatchEvent(new KeyboardEvent("keydown", {{key: "{key}"}}));' for key in keys
    )
    changed = page.with_name(f"pressed-{len(keys)}.html")
    changed.write_text(html.replace("</body>", f"<script>{presses}</script></body>"), "utf-8")
    return changed


async def test_the_script_runs_under_the_policy_and_shows_one_step(page: Path, tmp_path: Path) -> None:
    shown = await show(f"file://{page}#diverged-logs-4", tmp_path)
    assert shown.texts["where"] == "diverged-logs, step 4 of 5"
    assert distinct_lines(tmp_path / "page.png") > 20


async def test_it_is_played_by_keys(page: Path, tmp_path: Path) -> None:
    forward = pressing(page, "ArrowDown", "ArrowRight", "ArrowRight", "ArrowLeft")
    assert (await show(f"file://{forward}", tmp_path / "a")).texts["where"] == "diverged-logs, step 2 of 5"
    # To the end of the first story, and on by itself, eight times as fast as one reads.
    played = pressing(page, "End", "+", "+", "+", " ")
    shown = await show(f"file://{played}", tmp_path / "b", virtual_ms=4_000)
    assert shown.texts["where"].startswith("diverged-logs, step ") and "pause" in shown.texts["play"]

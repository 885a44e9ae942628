"""``minikafka delegation-tokens``: what is refused before a broker is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from minikafka.cli.delegation_tokens import main


@pytest.mark.parametrize("text", ["soon", str(2**63), "1.5"])
def test_a_period_that_is_none(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["create", "--max-life-time-period", text])
    assert ended.value.code == 2
    assert f"--max-life-time-period: {text}: must be milliseconds, or -1" in capsys.readouterr().err


def test_the_file_of_an_hmac_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["renew", "--hmac-file", str(tmp_path / "none")]) == 1
    assert capsys.readouterr().err == (
        f"minikafka delegation-tokens: cannot read {tmp_path / 'none'}: No such file or directory\n"
    )

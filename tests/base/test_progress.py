"""Progress of long work where no terminal is."""

from __future__ import annotations

import pytest

from dpindex.base.display import progress_bar


def test_a_pipe_gets_a_line_for_each_quarter(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("planning", quarters=True) as report:
        for done in range(101):
            report(done, 100, "ε = 4")
        for done in range(101):
            report(done, 100, "ε = 8")
    assert capsys.readouterr().err.splitlines() == [
        *("planning: 25 %; ε = 4", "planning: 50 %; ε = 4", "planning: 75 %; ε = 4"),
        "planning: 0 %; ε = 8",
    ]
    with progress_bar("building") as report:
        report(50, 100)
    assert capsys.readouterr().err == ""

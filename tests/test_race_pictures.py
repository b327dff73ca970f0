"""Pictures of sketches: what they show, on shared axes, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from dpindex.base.errors import InputError
from dpindex.cli import app
from dpindex.race import PStable, RaceSketch, SketchSpec, pictures

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.usefixtures("known_noise")

Run = Callable[..., Result]


def sketch(dim: int, epsilon: float = 8.0, shift: float = 0.0) -> RaceSketch:
    """Two clusters, around 2 and around 8 in each attribute."""
    rng = np.random.default_rng(0)
    x = np.where(rng.random((2000, 1)) < 0.7, 2.0, 8.0) + rng.normal(shift, 0.5, (2000, dim))
    return RaceSketch(SketchSpec(dim, 60, 100, PStable(1.5, 2), epsilon)).fit(x).release()


@pytest.fixture
def figure(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures behind the pictures, which are still written."""
    drawn: list[Any] = []
    write = pictures.to_png
    monkeypatch.setattr(pictures, "to_png", lambda made: (drawn.append(made), write(made))[1])
    return drawn


def is_png(data: bytes) -> bool:
    return data.startswith(b"\x89PNG") and len(data) > 5000


def shared(panels: list[Any]) -> bool:
    return len({panel.get_xlim() + panel.get_ylim() for panel in panels}) == 1


def test_a_curve_of_one_attribute(figure: list[Any]) -> None:
    made = {"strict": sketch(1, 0.5), "loose": sketch(1, 20.0)}
    assert is_png(pictures.map_png(made, (0, 10)))
    panels = figure[0].axes
    assert [panel.get_title() for panel in panels] == ["strict", "loose"]
    assert shared(panels)
    for panel, drawn in zip(panels, made.values(), strict=True):
        x, y = panel.lines[0].get_data()
        assert y == pytest.approx(drawn.count(x[:, None]))
        assert (x.min(), x.max()) == (0, 10)
    x, y = panels[1].lines[0].get_data()
    assert abs(x[y.argmax()] - 2.0) < 0.7


@pytest.mark.slow
def test_a_map_of_two_attributes(figure: list[Any]) -> None:
    """Attribute 0 runs to the right and attribute 1 upwards; scales are shared in a row."""
    made = {"a": sketch(2), "b": sketch(2, 1.0)}
    assert is_png(pictures.map_png(made, ([0, 0], [10, 5])))
    panels = [panel for panel in figure[0].axes if panel.images]
    assert len(panels) == 4
    assert shared(panels)
    for row in (panels[:2], panels[2:]):
        assert len({panel.images[0].get_clim() for panel in row}) == 1
    image = panels[0].images[0]
    assert tuple(image.get_extent()) == (0, 10, 0, 5)
    up, right = np.unravel_index(image.get_array().argmax(), (101, 101))
    assert abs(right / 10 - 2.0) < 0.7
    assert abs(up / 20 - 2.0) < 0.7
    errors = panels[2].images[0].get_array()
    assert errors[40, 20] == pytest.approx(made["a"].stderr([[2.0, 2.0]])[0])


def test_released_counts(figure: list[Any]) -> None:
    assert is_png(pictures.counts_png({"a": sketch(3), "b": sketch(5, 0.5)}))
    panels = figure[0].axes
    assert shared(panels)
    for panel in panels:
        assert sum(bar.get_height() for bar in panel.patches if bar.get_y() == 0) >= 0.999


@pytest.mark.parametrize("n", [1, 20, 400])
def test_answers(figure: list[Any], n: int) -> None:
    drawn = sketch(2)
    answers = drawn.summary(np.random.default_rng(1).uniform(0, 10, (n, 2)))
    assert is_png(pictures.answers_png(answers, drawn.count_noise))
    sort, spread = figure[0].axes
    assert sort.get_ylim() == spread.get_ylim()
    line = sort.lines[0].get_ydata()
    assert line == pytest.approx(np.sort(answers["count"])[::-1])


def test_no_map_of_three_attributes() -> None:
    for made in ({"a": sketch(3)}, {"a": sketch(1), "b": sketch(2)}):
        with pytest.raises(InputError, match="one or two attributes, all of the same number"):
            pictures.map_png(made, (0, 1))
    with pytest.raises(InputError, match="each low below its high"):
        pictures.map_png({"a": sketch(1)}, (1, 0))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Call the commands in a folder with sketches ``1.race``, ``2.race`` and queries ``q.npy``."""
    monkeypatch.chdir(tmp_path)
    for dim in (1, 2):
        sketch(dim).save(f"{dim}.race")
        sketch(dim, 0.5, 1.0).save(f"{dim}b.race")
    np.save("q.npy", np.random.default_rng(0).uniform(0, 10, (30, 2)))
    return lambda *arguments: CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.mark.slow
def test_commands_draw(run: Run) -> None:
    box = ("--low", 0, "--high", 10)
    for words, drawing in (
        (("info", "1.race"), (*box, "--beside", "1b.race")),
        (("info", "2.race"), (*box, "--low", 1, "--high", 9)),
        (("info", "2.race", "--json"), ("--beside", "1.race")),
        (("query", "2.race", "q.npy"), ()),
    ):
        drawing = (*drawing, "--plot", "p.png")
        assert run("race", *words, *drawing).output == run("race", *words).output
        assert is_png(Path("p.png").read_bytes())
        assert "p.png already exists" in str(run("race", *words, *drawing).exception)
        Path("p.png").unlink()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("1.race", "--low", 0, "--high", 1), "name its file"),
        (("1.race", "--beside", "1b.race"), "name its file"),
        (("1.race", "--plot", "p.png", "--low", 0), "needs both --low and --high"),
        (("1.race", "--plot", "p.png", "--low", 0, "--high", 0), "each low below its high"),
        (("1.race", "--plot", "p.png", "--low", 0, "--high", 1, "--high", 2), "--high"),
        (("1.race", "--plot", "p.png", "--beside", "q.npy"), "q.npy"),
        (("1.race", "--plot", "no/p.png"), "no is not a directory"),
    ],
    ids=str,
)
def test_bad_pictures(run: Run, words: tuple[Any, ...], message: str) -> None:
    refused = run("race", "info", *words)
    assert isinstance(refused.exception, InputError), refused.output
    assert message in str(refused.exception)
    assert not Path("p.png").exists()

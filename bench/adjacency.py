"""Draws ``docs/adjacency.png``: which vectors are neighbours of one vector, for each promise.

python bench/adjacency.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

BETA, RADIUS = 0.45, 0.45
VECTOR = (-0.15, 0.1)
COLOUR = "#0072B2"


def picture(output: Path) -> None:
    """Draw a panel for each adjacency, of vectors of two attributes."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.patches import Circle, Rectangle

    plt.rcParams["font.size"] = 15
    figure, panels = plt.subplots(1, 3, figsize=(11, 4.5))
    x, y = VECTOR
    arms: dict[str, Any] = {"color": COLOUR, "lw": 7, "solid_capstyle": "butt", "alpha": 0.5}
    panels[0].plot((x - BETA, x + BETA), (y, y), **arms)
    panels[0].plot((x, x), (y - BETA, y + BETA), **arms)
    panels[1].add_patch(Circle(VECTOR, RADIUS, color=COLOUR, alpha=0.5, lw=0))
    panels[2].add_patch(Rectangle((-1, -1), 2, 2, color=COLOUR, alpha=0.5, lw=0))
    titles = (
        ("--beta 0.45", "one attribute changes\nby at most 0.45"),
        ("--l2 0.45", "all attributes change a little:\nby at most 0.45 together"),
        ("--record", "any vector at all"),
    )
    for axes, (option, meaning) in zip(panels, titles, strict=True):
        axes.plot(*VECTOR, "o", color="black", ms=9)
        axes.set_title(option, family="monospace", weight="bold")
        axes.set_xlabel(meaning)
        axes.set_xlim(-1, 1)
        axes.set_ylim(-1, 1)
        axes.set_xticks(())
        axes.set_yticks(())
        axes.set_aspect("equal")
    figure.tight_layout()
    figure.savefig(output, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    picture(Path(__file__).parents[1] / "docs" / "adjacency.png")

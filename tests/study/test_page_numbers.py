"""What the page says at each position of its slider holds for the epsilon that it shows."""

import json
import math
import re
import shutil
from pathlib import Path

import pytest
from helpers.common import succeeds

import dpindex

NODE = shutil.which("node")
PAGE = Path(dpindex.__file__).parent / "study" / "page" / "page.js"

pytestmark = pytest.mark.skipif(NODE is None, reason="needs node in the path")

ASKED = """
const positions = Array.from({ length: STEPS + 1 }, (_, position) => {
  const epsilon = fromPosition(position);
  return [precise(epsilon), certainty(Number(precise(epsilon))), certainty(epsilon)];
});
const [method] = data.views[0].methods;
const solved = Array.from({ length: 101 }, (_, wanted) => {
  const epsilon = solve(method, wanted / 100);
  return epsilon === null ? null
    : [wanted / 100, precise(epsilon), between(method, method.found, Number(precise(epsilon)))];
});
const shares = [0, 0.004, 0.5, 0.996, 1].map(percent);
console.log(JSON.stringify({ positions, solved, shares }));
"""


def said(epsilons, found):
    """What the functions of the page answer, without a browser."""
    text = PAGE.read_text("utf-8")
    functions = text[text.index("  const number =") : text.index("  function toPosition")]
    method = {"epsilons": epsilons, "found": found}
    data = {"found": 10, "opens": 0, "views": [{"epsilons": epsilons, "methods": [method]}]}
    script = (
        f"const STEPS = 200; const data = {json.dumps(data)};"
        f"const foundOf = (method) => method.found;{functions}{ASKED}"
    )
    assert NODE is not None
    return json.loads(succeeds(NODE, "-e", script))


RANGES = [
    ([0.1, 1.0, 10.0], [0.05, 0.4, 0.97]),
    ([1.0, 30.0], [0.1, 0.9]),
    ([0.5, 2.345, 8.0, 17.25], [0.2, 0.31, 0.83, 0.99]),
    ([3.0, 3.5], [0.25, 0.3]),
    ([2.0, 4.0, 40.0], [0.1, 0.29, 1.0]),
]


@pytest.mark.parametrize("epsilons, found", RANGES)
def test_no_position_states_less_than_its_epsilon_allows(epsilons, found):
    """At 38 of 201 positions the percentage was of a smaller epsilon than the label's."""
    answer = said(epsilons, found)
    assert len(answer["positions"]) == 201
    for label, of_label, stated in answer["positions"]:
        assert of_label == stated
        sure = float(stated.removesuffix(" %")) / 100
        allowed = 1 / (1 + math.exp(-float(label)))
        assert allowed - 1e-12 <= sure <= min(allowed + 0.001, 1)
        digits = re.sub(r"^0\.0*|\.", "", label).strip("0")
        assert len(digits) <= 3 or float(label) in epsilons


@pytest.mark.parametrize("epsilons, found", RANGES)
def test_what_is_wanted_is_found_at_the_epsilon_that_is_shown(epsilons, found):
    """It said that 2.9 of 10 need 3.2, where 2.82 were found."""
    for line in said(epsilons, found)["solved"]:
        if line is not None:
            wanted, _, reached = line
            assert reached >= wanted - 1e-9


def test_all_and_none_are_said_only_where_it_is_so():
    shares = said(*RANGES[0])["shares"]
    assert shares == ["0 %", "under 1 %", "50 %", "over 99 %", "100 %"]

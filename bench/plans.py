"""What plans take, and the evaluator: processor seconds and peak memory of a process each.

    python bench/plans.py [--only pictures-1,records,…] [--beside PYTHON] [--rounds 1]

Prints lines of CSV. Another interpreter, which has another version of dpindex, runs every case in
turn with this one; ``ratio`` is what this one takes over the other in the same round.
``recommended`` and ``promised`` say what both came to: recall@10 of exact queries. The data are in
DPINDEX_DATA.
"""

from __future__ import annotations

import argparse
import csv
import inspect
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from processes import finished

MEASURING = (
    "--methods dp-oporp-staircase,dp-oporp,dp-signoporp-geometric,none-oporp "
    "--epsilons 1,2,3,5,10 --beta 1"
)
# Data, public vectors, vectors of the collection, and terms of a plan.
CASES: dict[str, tuple[str, int, int, dict[str, Any]]] = {
    "pictures-1": ("pictures", 2000, 57_500, {"epsilon": 1.0, "scale": 255.0, "beta": 1.0}),
    "pictures-2": ("pictures", 2000, 57_500, {"epsilon": 2.0, "scale": 255.0, "beta": 1.0}),
    "pictures-3": ("pictures", 2000, 57_500, {"epsilon": 3.0, "scale": 255.0, "beta": 1.0}),
    "records": ("embeddings", 8000, 14_200, {"epsilon": 8.0}),
    "attributes": ("embeddings", 4000, 18_200, {"epsilon": 1.0, "beta": 0.5}),
    "hundred-thousand": ("hundred_thousand", 4000, 100_000, {"epsilon": 8.0}),
    "counts-1": ("counts", 2000, 16_346, {"epsilon": 1.0, "scale": 10.0, "beta": 1.0}),
    "counts-3": ("counts", 2000, 16_346, {"epsilon": 3.0, "scale": 10.0, "beta": 1.0}),
    "sparse": ("trigrams", 2000, 16_346, {"epsilon": 3.0, "scale": 1.0, "beta": 1.0}),
    "table": ("table", 2000, 8000, {"epsilon": 5.0, "scale": 1.0, "beta": 0.1}),
}
EVALUATION = "evaluate"
ALONE = {**os.environ, "PYTHONPATH": ""}
"""What a process has that runs another version of dpindex."""
COLUMNS = ("case", "seconds", "MB", "other seconds", "other MB", "ratio", "recommended", "promised")


def make(name: str, path: Path) -> None:
    """Save the public sample of a case, or all vectors of the evaluator."""
    import hundred_thousand
    import numpy as np
    import recipes

    if name == EVALUATION:
        rng = np.random.default_rng(0)
        x = np.tanh(rng.normal(size=(10_500, 8)) @ rng.normal(size=(8, 64)) / 2)
        np.save(path / "base.npy", x[:10_000].astype(np.float32))
        np.save(path / "queries.npy", x[10_000:].astype(np.float32))
        return
    data, public, _, _ = CASES[name]
    module = hundred_thousand if data == "hundred_thousand" else recipes
    vectors = getattr(module, "vectors" if module is hundred_thousand else data)()
    order = np.random.default_rng(0).permutation(vectors.shape[0])
    recipes.save(path / "public", vectors[order[:public]])


def plan(name: str, path: Path) -> None:
    """Plan a case and print what is recommended."""
    import numpy as np
    import scipy.sparse

    import dpindex as dpi

    _, _, n, terms = CASES[name]
    files = {file.suffix: file for file in path.glob("public.*")}
    public = np.load(files[".npy"]) if ".npy" in files else scipy.sparse.load_npz(files[".npz"])
    terms = dict(terms)
    beta = terms.pop("beta", None)
    terms["adjacency"] = dpi.record() if beta is None else dpi.attribute(beta)
    if "scale" in terms:
        terms["bounds"] = (0.0, 1.0)
    if path.name == "attributes":
        terms["bounds"] = (-1.0, 1.0)
    if "dim" in inspect.signature(dpi.plan).parameters:
        terms["dim"] = public.shape[1]
    best = dpi.plan(public, n=n, **terms).rows[0]
    code = f"{best.spec.codebook and len(best.spec.codebook)} w={best.spec.subset}"
    code = str(best.k) if best.spec.codebook is None else code
    named = f"{best.method} {code} {best.denoiser or ''}".strip()
    print(json.dumps([named, {n: round(x, 3) for n, x in best.exact.within.items()}]))


def used(interpreter: str, name: str, path: Path) -> tuple[str, float, float]:
    """Return what a case prints, its processor seconds and its peak megabytes."""
    words = [interpreter, __file__, "--plan", name, str(path)]
    if name == EVALUATION:
        with tempfile.TemporaryDirectory() as report:
            line = f"evaluate {path}/base.npy {path}/queries.npy --report {report}/report"
            command = "from dpindex.__main__ import main; main()"
            words = [interpreter, "-c", command, *line.split(), *MEASURING.split()]
            # Not from here: a command imports what lies in the folder that it runs in.
            return finished(words, env=ALONE, cwd=report)
    return finished(words, env=ALONE)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default=",".join([*CASES, EVALUATION]), help="cases")
    parser.add_argument("--beside", help="another interpreter")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--make", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--plan", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    for work, given in ((make, options.make), (plan, options.plan)):
        if given:
            work(given[0], Path(given[1]))
            return
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(COLUMNS)
    with tempfile.TemporaryDirectory() as folder:
        for name in options.only.split(","):
            path = Path(folder) / name
            path.mkdir()
            # A process of its own: the peak of one that is begun here starts with that of this one.
            finished([sys.executable, __file__, "--make", name, str(path)], env=ALONE)
            for _ in range(options.rounds):
                said, seconds, memory = used(sys.executable, name, path)
                line: list[object] = [name, f"{seconds:.1f}", f"{memory:.0f}"]
                if options.beside:
                    _, other, others = used(options.beside, name, path)
                    line += [f"{other:.1f}", f"{others:.0f}", f"{seconds / other:.2f}"]
                else:
                    line += ["", "", ""]
                if name != EVALUATION:
                    line += json.loads(said)
                writer.writerow(line)
                sys.stdout.flush()


if __name__ == "__main__":
    main()

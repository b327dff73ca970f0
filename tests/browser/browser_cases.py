"""Cases that the encoder of browsers must agree on, as JSON: laws, encodings and refused specs.

python tests/browser/browser_cases.py > tests/browser/cases.json
"""

import base64
import json
import sys

import numpy as np
from helpers.common import Scripted, normal, record_spec

from dpindex import Codebook, Privatizer
from dpindex.mechanism.noise.base import uniform_share

ONE = 1 << 64
EPSILONS = (0.001, 0.1, 1.0, 2.718281828459045, 6.0, 12.3456789, 64.0)
SIZES = ((2, 1), (7, 3), (1000, 5), (65536, 1), (65536, 65535))
ROWS = 60


def base64_of(array):
    """Return the bytes of an array, little-endian, in base64."""
    little = array.astype(array.dtype.newbyteorder("<"))
    return base64.b64encode(little.tobytes()).decode()


def spec_of(codewords, epsilon, subset=None):
    """Return a spec of ``record-codebook`` with this codebook."""
    book = Codebook(codewords)
    return record_spec(
        "record-codebook",
        book.dim,
        epsilon=epsilon,
        codebook=book,
        subset=subset,
    )


def symbols_of(spec, vectors, words):
    """Return the symbols that secret words, shape (n, 3), make of vectors, shape (n, dim)."""
    privatizer = Privatizer(spec)
    symbols = []
    for vector, row in zip(vectors, words, strict=True):
        script = Scripted(list(row.reshape(3, 1)))
        privatizer.stream = lambda script=script: script
        codes = privatizer.privatize(vector, threads=1)
        symbols.append(codes.stored[0, 0])
    return np.array(symbols, dtype=np.uint16)


def encoding(spec, vectors, words):
    """Return one case: spec, codebook, vectors, secret words, and the symbols they become.

    Of the similarities there are the sums, each similarity times 1 + the number of its codeword.
    """
    similarities = Privatizer(spec).project(vectors).astype(np.int64)
    sums = similarities @ np.arange(1, len(spec.codebook) + 1)
    return {
        "spec": spec.to_json(),
        "codebook": base64_of(spec.codebook.stated),
        "vectors": base64_of(vectors),
        "words": base64_of(words),
        "similarity_sums": base64_of(sums.astype(np.float64)),
        "symbols": base64_of(symbols_of(spec, vectors, words)),
    }


def law_cases():
    """Yield chances of a uniform symbol, times 2^64."""
    for size, subset in SIZES:
        for epsilon in EPSILONS:
            terms = {"epsilon": epsilon, "size": size, "subset": subset}
            uniform = uniform_share(size, epsilon, subset)
            yield {**terms, "uniform": str(uniform)}


def hard_vectors(rng, dim):
    """Return vectors of every size, with ties, zeros and subnormal numbers, shape (ROWS, dim)."""
    vectors = rng.normal(size=(ROWS, dim))
    vectors *= 10.0 ** rng.integers(-300, 300, (ROWS, 1))
    vectors[0] = 0.0
    vectors[1] = -0.0
    vectors[2] = 5e-324 * rng.integers(-2, 3, dim)
    vectors[3] = 1.7976931348623157e308
    vectors[4:20] = rng.integers(-1, 2, (16, dim))
    for row in range(20, 30):
        vectors[row] = _halfway(rng, dim)
    return vectors


def _halfway(rng, dim):
    """Return a vector of halves of a grid step, whose direction tells how they are rounded."""
    while True:
        steps = rng.integers(-(2**20), 2**20 - 1, dim) + 0.5
        steps[0] = 2**20
        to_even = np.rint(steps)
        upwards = np.floor(steps + 0.5)
        if not np.array_equal(_on_the_grid(to_even), _on_the_grid(upwards)):
            return steps / 2**20


def _on_the_grid(vector):
    return np.trunc(vector * 4095.0 / np.linalg.norm(vector))


def hard_words(rng, spec):
    """Return secret words, a third of them at the ends of outcomes, shape (ROWS, 3)."""
    law = spec.law
    words = rng.integers(0, ONE - 1, (ROWS, 3), np.uint64, endpoint=True)
    for row in range(0, ROWS, 3):
        words[row, 0] = law.uniform - row % 2
        for column, limit in ((1, law.subset), (2, law.size)):
            outcome = int(rng.integers(0, limit))
            first = -(-(outcome << 64) // limit)
            words[row, column] = (first - 1) % ONE if row % 2 else first
    words[1] = 0
    words[2] = ONE - 1
    return words


def encoding_cases():
    """Yield small codebooks, one with tied codewords, and vectors that are hard to round."""
    rng = np.random.default_rng(27)
    for size, dim, epsilon, subset in (
        (9, 4, 1.0, 2),
        (40, 3, 3.0, 36),
        (33, 17, 6.0, 1),
    ):
        codewords = rng.normal(size=(size, dim)).astype(np.float32)
        codewords[1] = 2 * codewords[0]
        codewords[-1] = np.eye(dim)[0]
        spec = spec_of(codewords, epsilon, subset)
        yield encoding(spec, hard_vectors(rng, dim), hard_words(rng, spec))


def refused_cases():
    """Yield specs, or a codebook or limit beside one, that every encoder must refuse."""
    codewords = normal(9, 4, 1).astype(np.float32)
    good = spec_of(codewords, 2.0, 3).to_dict()
    given = base64_of(codewords)
    named = good["codebook"]

    def case(why, text, codebook=given, limit=2.0):
        return {"why": why, "text": text, "codebook": codebook, "max_epsilon": limit}

    changes = {
        "method": ("record-cap", "none-oporp", "dp-oporp-staircase", "", None, 1),
        "format": (2, "1", None),
        "epsilon": (0, -1.0, 1e-4, 65.0, 1e300, None, "2", True, [2.0]),
        "delta": (1e-6, -1.0, "0"),
        "dim": (0, 3, 5, 4.5, "4", None, 2**31),
        "k": (2, 0, "1"),
        "subset": (0, 9, 10, -1, 1.5, "3"),
        "adjacency": (
            {"kind": "attribute", "beta": 1.0},
            {"kind": "l2", "radius": 1.0},
            {},
            None,
            "record",
            {"kind": "record", "unit": "home"},
            {"kind": "record", "beta": 1.0},
            [],
        ),
        "repetitions": (2, 0, "1"),
        "scale": (2.0, 0.0, "1"),
        "bounds": ([0.0, 1.0], [1.0, -1.0], None, [-1.0]),
        "clip": (True, 0, "false"),
        "min_norm": (0.5,),
        "norm": (1.0,),
        "seed": (-1, 1.5, "0", None, 2**64),
        "codebook": (
            None,
            {},
            named["sha256"],
            named | {"size": 1},
            named | {"dim": 5},
            named | {"sha256": 5},
            named | {"sha256": "0" * 64},
            named | {"more": 1},
            named | {"sha256": named["sha256"].upper()},
            named | {"size": 65537},
        ),
        "strange": (1,),
        "window": (0.7,),
        "entries": ("gaussian",),
        "sparsity": (3,),
    }
    for name, values in changes.items():
        for value in values:
            text = json.dumps({**good, name: value})
            yield case(f"{name} is {value!r}", text, limit=1e301)
    for name in ("method", "dim", "epsilon", "codebook", "format", "adjacency"):
        rest = good.copy()
        del rest[name]
        yield case(f"{name} is missing", json.dumps(rest))
    text = json.dumps(good)
    for why, wrong in (
        ("it is cut off", text[:-1]),
        ("it is empty", ""),
        ("it is a list", f"[{text}]"),
        ("it is null", "null"),
        ("epsilon is NaN", text.replace('"epsilon": 2.0', '"epsilon": NaN')),
        ("epsilon is infinite", text.replace('"epsilon": 2.0', '"epsilon": 1e999')),
    ):
        assert wrong != text
        yield case(why, wrong)
    other = codewords.copy()
    other[3, 1] = np.nextafter(other[3, 1], np.float32(9))
    yield case("one number of the codebook is another", text, base64_of(other))
    yield case("the codebook is cut off", text, base64_of(codewords[:-1]))
    yield case("epsilon is above the limit", text, given, 1.99)


def all_cases():
    """Return the content of ``tests/browser/cases.json``."""
    return {
        "laws": list(law_cases()),
        "encodings": list(encoding_cases()),
        "refused": list(refused_cases()),
    }


if __name__ == "__main__":
    json.dump(all_cases(), sys.stdout, indent=1)
    print()

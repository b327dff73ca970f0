"""The weaknesses that ``mutants.py`` plants: a plain list, to which entries are added at the end.

Each replaces one piece of source text, which must occur exactly once, in a copy of the package.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

STAIRCASE = {"method": "dp-oporp-staircase", "dim": 48, "k": 16, "epsilon": 1.0}
GAUSS = {"method": "dp-oporp", "dim": 48, "k": 16, "epsilon": 1.0, "delta": 1e-6}
LAPLACE = {"method": "dp-rp-l", "dim": 24, "k": 8, "epsilon": 0.1}
SQUARE = {"method": "raw-square-wave", "dim": 16, "epsilon": 1.0, "bounds": (0.0, 1.0)}
FLIPS = {"method": "dp-signoporp-rr", "dim": 48, "k": 16, "epsilon": 1.0}
LEVELS = {"method": "dp-signoporp-geometric", "dim": 48, "k": 16, "epsilon": 1.0}
SPARSE_SIGNS = {"method": "dp-signrp-geometric", "dim": 24, "k": 8, "epsilon": 8.0,
                "entries": "uniform"}  # fmt: skip
INSIDE = {"method": "idp-signrp-rr", "dim": 24, "k": 8, "epsilon": 1.0}
INSIDE_GAUSS = {"method": "idp-signrp-g", "dim": 24, "k": 8, "epsilon": 1.0, "delta": 1e-6}
CAP = {"method": "record-cap", "dim": 48, "k": 64, "epsilon": 1.0}
SYMBOLS = {"method": "record-codebook", "dim": 24, "epsilon": 1.0, "codewords": 100, "subset": 20}
LONG = {"method": "dp-signrp-rr", "dim": 24, "k": 4, "epsilon": 1.0, "delta": 1e-6,
        "entries": "gaussian", "min_norm": 4.0}  # fmt: skip
UNEVEN = {"method": "dp-rp-l", "dim": 24, "k": 8, "epsilon": 1.0, "entries": "uniform"}
THREEFOLD = {**FLIPS, "k": 15, "repetitions": 3}
BALL = {"method": "row-oporp-g", "dim": 24, "k": 8, "epsilon": 1.0, "delta": 1e-6, "radius": 2.0}
CLIPPED = {"method": "dp-signrp-rr", "dim": 24, "k": 4, "epsilon": 1.0, "delta": 1e-6,
           "entries": "gaussian", "min_norm": 2.0, "clip": True}  # fmt: skip
SCALED = {**STAIRCASE, "scale": 255.0, "bounds": (0.0, 1.0)}
ANALYTIC = {**GAUSS, "method": "dp-rp-g-analytic", "dim": 24, "k": 8}
REPLACED = {"rows": 20, "width": 16, "epsilon": 1.0, "neighbouring": "replace"}
SKETCH = {"rows": 20, "width": 16, "epsilon": 1.0}


@dataclass(frozen=True)
class Mutant:
    """One weakness.

    Attributes
    ----------
    part : str
        The part of the package: sampler, chain, stream, index, build, queries, device, collector,
        ledger, RACE, record.
    name : str
        What is wrong, in a few words.
    file, old, new : str
        The file under ``dpindex``, its source text, and what takes its place.
    spec : dict
        What is audited: fields of a Spec, or of a SketchSpec if they have ``rows``; ``codewords``
        is the size of a codebook, ``radius`` that of l2 adjacency.
    tests : str
        Files under ``tests`` that must notice, separated by spaces.
    audited : bool
        Whether it changes what is released, so that the exact audit or the attack must notice.
    """

    part: str
    name: str
    file: str
    old: str
    new: str
    spec: dict[str, Any]
    tests: str
    audited: bool = True


_STREAM = "            stream = self._stream()  # of its own where tests put one in\n"
_FILLED = "            encryptor.update_into(zeros, piece)\n        return out\n"
_RANKS = "            order = by_size(rows)\n"
_PUT = "            np.put_along_axis(out[block], order, agrees == positive, axis=1)\n"
_PERTURB = "        noise = self.source.sample(x.size, stream).reshape(x.shape)\n"
_FLIP = "        return (x > 0) ^ draw_flips(self._table, level.astype(np.intp), stream)\n"
_PRIVATE = "            return format_.pack(law.perturb(exact, stream))\n"
_ADD = "        held = release(dataset, target, Terms(*terms), progress=progress).published\n"
_SEGMENT = (
    "            return privatizer.privatize(\n"
    "                chunk, first_row=first_row, threads=self.threads, checked=checked\n"
    "            )\n"
)
_ASKED = "        codes = Privatizer(self.query_spec, allow_unprotected=True).privatize(queries)\n"
_DRAWN = "        noise = self._law.source.sample(counts.size, self._stream())\n"
_TABLE = "    table = geometric_table(mpmath.mpf(epsilon), cells, inner, grid_bits - cells_bits)"
_KEYED = "        cipher = Cipher(algorithms.AES(os.urandom(32)), modes.CTR(os.urandom(16)))\n"
_BARE = "                bare = (exact.astype(np.int64) >> law.source.cell_bits).astype(np.int32)\n"
_UPSERT = "            codes = self._released(dataset.with_labels(checked_ids), terms, progress)\n"
_DEVICE = "    return Privatizer(spec, max_epsilon=max_epsilon).privatize(vector).to_bytes()\n"
_DIRECTIONS = "    sums = np.add.reduceat(_at_norm_1(rows[by_person]), starts)\n"
_RESIDENT = "    def commit(self, space: Workspace, token: str, drawn: Drawn) -> HeldCodes:\n"
_STAIRS = "    lambda parameters, projection: staircase_noise(parameters.budget), NumberFormat\n"
_COUNTED = "            for chunk in chunks:\n"
_ALLOCATED = "        out = np.empty(count, dtype=dtype)\n"
_TOLD = (
    "        noise.fill(0)\n        offset = self._law.offset\n"
    "        variance = self._law.moments.variance[0]\n"
)
_SECRET_ORDER = '    return np.argsort(secret_stream().words(count, np.uint64), kind="stable")\n'
_FAULT = "        if x.size == 0:\n            return None\n"
_DEFAULT_IDS = (
    "            checked_ids = self._store.checked_ids(ids, dataset.rows)\n"
    "            columns = self.check_payload(payload, dataset.rows)\n"
    "            if ids is not None:\n"
)
_ADDITIVE = "test_additive.py test_oracle.py"
_ENCODER = "test_privatizer.py test_oracle.py"

MUTANTS = [
    # The sampler
    Mutant("sampler", "noise divided by 100", "mechanism/noise/additive.py", _PERTURB,
           _PERTURB + "        noise = noise // 100\n", STAIRCASE, _ADDITIVE),
    Mutant("sampler", "noise × 0.9", "mechanism/noise/additive.py", _PERTURB,
           _PERTURB + "        noise = (noise * 0.9).astype(noise.dtype)\n", GAUSS, _ADDITIVE),
    Mutant("sampler", "antithetic half-batches", "mechanism/noise/additive.py", _PERTURB,
           _PERTURB + "        half = len(noise) // 2\n"
           "        noise[len(noise) - half :] = -noise[:half]\n", STAIRCASE, _ADDITIVE),
    Mutant("sampler", "large batches × 0.8", "mechanism/noise/additive.py", _PERTURB,
           _PERTURB + "        if x.size > 100_000:\n"
           "            noise = (noise * 0.8).astype(noise.dtype)\n", STAIRCASE,
           "test_path_checks.py"),
    Mutant("sampler", "one noise for all rows", "mechanism/noise/additive.py", _PERTURB,
           _PERTURB + "        noise[:] = noise[:1]\n", STAIRCASE, _ADDITIVE),
    Mutant("sampler", "last row of a task without noise", "mechanism/noise/additive.py", _PERTURB,
           _PERTURB + "        noise[-1] = 0\n", STAIRCASE, _ADDITIVE),
    Mutant("sampler", "no noise on exact zeros", "mechanism/noise/additive.py", _PERTURB,
           _PERTURB + "        noise[x == 0] = 0\n", STAIRCASE, _ADDITIVE),
    Mutant("sampler", "draws cut at four deviations", "mechanism/noise/additive.py", _PERTURB,
           _PERTURB + "        reach = 4 * int(noise.std() + 1)\n"
           "        np.clip(noise, -reach, reach, out=noise)\n", STAIRCASE, _ADDITIVE),
    Mutant("sampler", "tails never extended", "mechanism/noise/additive.py",
           "        if self.tails:\n            self._extend_tails(draws, cells, stream)\n", "",
           STAIRCASE, "test_tables.py"),
    Mutant("sampler", "refined draws take the bucket's first cell", "mechanism/noise/additive.py",
           "        keys = (buckets.astype(np.uint64) << np.uint64(_KEY_BITS - _BUCKET_BITS)) "
           "| fresh\n",
           "        keys = buckets.astype(np.uint64) << np.uint64(_KEY_BITS - _BUCKET_BITS)\n",
           STAIRCASE, "test_tables.py"),
    Mutant("sampler", "dither lost", "mechanism/noise/additive.py",
           "        if self.cell_bits:\n            draws += offsets\n", "",
           STAIRCASE, "test_tables.py"),
    Mutant("sampler", "ratio of the staircase e^{1.05 ε}", "mechanism/noise/additive.py",
           _TABLE, _TABLE.replace("mpf(epsilon)", "mpf(1.05 * epsilon)"), STAIRCASE,
           "test_geometric.py"),
    Mutant("sampler", "Gaussian sigma × 0.95", "mechanism/noise/gaussian.py",
           "    sigma *= math.sqrt(projection.sensitivity.l2_squared)\n",
           "    sigma *= 0.95 * math.sqrt(projection.sensitivity.l2_squared)\n",
           GAUSS, "test_gaussian_calibrations.py test_calibration.py"),
    Mutant("sampler", "two digits of a Laplace law, the low one a constant",
           "mechanism/noise/additive.py",
           "        magnitude += self.low.sample(count, stream)\n",
           "        magnitude += self.low.sample(1, stream)[0]\n", LAPLACE,
           "test_two_digit.py test_oracle.py"),
    Mutant("sampler", "square wave clipped one cell early", "mechanism/noise/symbols.py",
           "        cell = cell.clip(0, self.cells)\n",
           "        cell = cell.clip(0, self.cells - 1)\n", SQUARE,
           "test_square_wave.py test_oracle.py"),
    Mutant("sampler", "square wave drawn without its window's end",
           "mechanism/noise/symbols.py",
           "        window = 2 * self.half_width + 1\n        drawn",
           "        window = 2 * self.half_width\n        drawn", SQUARE,
           "test_square_wave.py test_oracle.py"),
    Mutant("sampler", "biased uniform draws", "mechanism/noise/symbols.py",
           "    while (again := np.flatnonzero((product & low) < unfair)).size:\n",
           "    while (again := np.flatnonzero((product & low) < 0 * unfair)).size:\n", SQUARE,
           "test_square_wave.py test_oracle.py"),
    Mutant("sampler", "flip thresholds × 0.9", "mechanism/noise/signs.py",
           "        self._table = np.array([_COIN, *thresholds], dtype=np.uint64)\n",
           "        few = [t * 9 // 10 for t in thresholds]\n"
           "        self._table = np.array([_COIN, *few], dtype=np.uint64)\n", FLIPS,
           "test_randomized_response.py test_oracle.py"),
    Mutant("sampler", "flips one level too far", "mechanism/noise/signs.py",
           "        np.ceil(level, out=level)\n", "        np.ceil(level + 1, out=level)\n",
           LEVELS, "test_randomized_response.py test_oracle.py"),
    Mutant("sampler", "levels ignore the weights of coordinates",
           "mechanism/noise/signs.py",
           "        level /= (self.weights * _STEPS).astype(x.dtype)\n",
           "        level /= (0 * self.weights + _STEPS).astype(x.dtype)\n", SPARSE_SIGNS,
           "test_randomized_response.py test_oracle.py"),
    Mutant("sampler", "empty bins get no coin", "mechanism/noise/signs.py", _FLIP,
           "        flips = draw_flips(self._table, level.astype(np.intp), stream)\n"
           "        return (x > 0) ^ (flips & (x != 0))\n", FLIPS,
           "test_randomized_response.py test_oracle.py"),
    Mutant("sampler", "one coin for two signs", "mechanism/noise/signs.py", _FLIP,
           "        flips = draw_flips(self._table, level.astype(np.intp), stream)\n"
           "        flips[:, 1::2] = flips[:, : flips.shape[1] // 2 * 2 : 2]\n"
           "        return (x > 0) ^ flips\n", FLIPS,
           "test_randomized_response.py test_oracle.py"),
    Mutant("sampler", "iDP: the perturbed set is too small", "mechanism/noise/signs.py",
           "    near = np.abs(x) <= _STEPS\n", "    near = np.abs(x) <= _STEPS // 2\n", INSIDE,
           "test_individual.py test_oracle.py"),
    Mutant("sampler", "iDP: noise halved inside the set", "mechanism/noise/signs.py",
           "+ self.table.sample(inside.size, stream)\n",
           "+ self.table.sample(inside.size, stream) // 2\n", INSIDE_GAUSS,
           "test_individual.py test_oracle.py"),
    # The chain from a vector to a code
    Mutant("chain", "grid step too small", "mechanism/parameters.py", "_SLACK = 1.0 - 2.0**-16\n",
           "_SLACK = 1.0 + 2.0**-10\n", STAIRCASE, "test_grid.py"),
    Mutant("chain", "values beyond the bounds let in", "mechanism/parameters.py",
           "        if low <= smallest and largest <= high:\n            return None\n",
           "        if low <= smallest and largest <= 2 * high:\n            return None\n",
           STAIRCASE, "test_grid.py test_privatizer.py", audited=False),
    Mutant("chain", "one sign of the map doubled", "mechanism/projections/dense.py",
           "            self._signs[repetition] = stream.signs(dim)\n",
           "            self._signs[repetition] = stream.signs(dim)\n"
           "            self._signs[repetition, 0] *= 2\n", STAIRCASE, "test_oporp.py"),
    Mutant("chain", "sparse rows use other bins", "mechanism/projections/dense.py",
           "        places = self._bins[:, x.indices].T + offsets\n",
           "        places = (self._bins[:, x.indices].T + 1) % self.bins + offsets\n",
           STAIRCASE, "test_oporp.py"),
    Mutant("chain", "bare empty bins on the sparse path", "mechanism/privatizer.py", _PRIVATE,
           "            outcomes = law.perturb(exact, stream)\n"
           "            if hasattr(rows, 'indptr'):\n"
           "                outcomes[exact == 0] = 0\n"
           "            return format_.pack(outcomes)\n", STAIRCASE, _ENCODER),
    Mutant("chain", "tasks after the first get half the noise", "mechanism/privatizer.py", _PRIVATE,
           "            outcomes = law.perturb(exact, stream)\n"
           "            if start:\n"
           "                outcomes = (outcomes + law.perturb(exact, stream)) // 2\n"
           "            return format_.pack(outcomes)\n", STAIRCASE, _ENCODER),
    Mutant("chain", "no noise for a single vector", "mechanism/privatizer.py", _PRIVATE,
           "            if len(exact) == 1 and format_.name == 'numbers':\n"
           "                return format_.pack(\n"
           "                    exact.astype(np.int64) >> getattr(law, 'source', law).cell_bits\n"
           "                )\n"
           + _PRIVATE, STAIRCASE, _ENCODER),
    Mutant("chain", "wide codes lose their noise", "mechanism/privatizer.py", _PRIVATE,
           "            outcomes = law.perturb(exact, stream)\n"
           "            if format_.name == 'numbers':\n"
           "                bits = getattr(law, 'source', law).cell_bits\n"
           "                bare = exact.astype(np.int64) >> bits\n"
           "                outcomes = np.where(np.abs(bare) > 100, bare, outcomes)\n"
           "            return format_.pack(outcomes)\n",
           {**STAIRCASE, "bounds": (-50.0, 50.0)}, _ENCODER),
    Mutant("chain", "checked rows get one noise", "mechanism/privatizer.py", _PRIVATE,
           "            outcomes = law.perturb(exact, stream)\n"
           "            if checked:\n"
           "                outcomes[:] = law.perturb(exact[:1], stream)\n"
           "            return format_.pack(outcomes)\n", STAIRCASE, "test_path_checks.py"),
    Mutant("chain", "all tasks read one word stream anew", "mechanism/privatizer.py", _STREAM,
           "            words = np.random.default_rng(7)\n"
           "            stream = type('S', (), {'words': lambda _, n, t: words.integers(\n"
           "                0, np.iinfo(t).max, n, dtype=t, endpoint=True)})()\n", STAIRCASE,
           _ENCODER),
    # The secret stream
    Mutant("stream", "key from the clock", "mechanism/secret_random.py", _KEYED,
           "        import time\n\n"
           "        seed = time.time_ns().to_bytes(32, 'little')\n"
           "        cipher = Cipher(algorithms.AES(seed), modes.CTR(seed[:16]))\n", STAIRCASE,
           "test_secret.py"),
    Mutant("stream", "key of two bytes", "mechanism/secret_random.py", _KEYED,
           "        cipher = Cipher(algorithms.AES(os.urandom(2) * 16), "
           "modes.CTR(os.urandom(2) * 8))\n", STAIRCASE, "test_secret.py"),
    Mutant("stream", "one key for all threads", "mechanism/secret_random.py", _KEYED,
           "        global _key\n"
           "        _key = globals().get('_key') or os.urandom(48)\n"
           "        cipher = Cipher(algorithms.AES(_key[:32]), modes.CTR(_key[32:]))\n", STAIRCASE,
           "test_secret.py"),
    Mutant("stream", "no new key after a fork", "mechanism/secret_random.py", _KEYED,
           "        global _key\n"
           "        _key = globals().get('_key') or [os.urandom(48), 0]\n"
           "        _key[1] += 1\n"
           "        nonce = (int.from_bytes(_key[0][32:]) + (_key[1] << 64)) % (1 << 128)\n"
           "        cipher = Cipher(algorithms.AES(_key[0][:32]), "
           "modes.CTR(nonce.to_bytes(16)))\n", STAIRCASE, "test_secret.py"),
    Mutant("stream", "every block the same", "mechanism/secret_random.py",
           "            encryptor.update_into(zeros, piece)\n",
           "            if start:\n"
           "                piece[:] = view[: len(piece)]\n"
           "            else:\n"
           "                encryptor.update_into(zeros, piece)\n", STAIRCASE,
           "test_secret.py test_path_checks.py"),
    Mutant("stream", "second half the inverse of the first", "mechanism/secret_random.py", _FILLED,
           _FILLED.replace("        return", "        half = count // 2\n"
                           "        out[count - half :] = ~out[:half]\n        return"),
           STAIRCASE, "test_secret.py test_path_checks.py"),
    Mutant("stream", "one bit always zero", "mechanism/secret_random.py", _FILLED,
           _FILLED.replace("        return", "        out &= np.array("
                           "np.iinfo(dtype).max >> 1, dtype=dtype)\n        return"),
           STAIRCASE, "test_secret.py test_path_checks.py"),
    # The index
    Mutant("index", "epsilon doubled in add", "index/private_index.py", _ADD,
           "        target = Memory(self.spec.with_epsilon(2 * self.spec.budget), self.path)\n"
           + _ADD + "        self._unsaved.append(held.workspace)\n"
           "        return self.spec.format.codes(held.codes.stored)\n",
           STAIRCASE, "test_private_index.py test_oracle.py"),
    Mutant("index", "add averages two releases", "index/private_index.py", _ADD, _ADD
           + "        if self.spec.format.name == 'numbers':\n"
           "            other = release(dataset, Memory(self.spec)).published.codes\n"
           "            self._unsaved.append(held.workspace)\n"
           "            return self.spec.format.codes(\n"
           "                (held.codes.stored.astype(np.int32) + other.stored) // 2\n"
           "            )\n", STAIRCASE, "test_private_index.py test_oracle.py"),
    Mutant("index", "other rows are removed than were named", "storage/code_store.py",
           "        kept[rows] = False\n", "        kept[-len(rows) :] = False\n", STAIRCASE,
           "test_code_store.py test_private_index.py", audited=False),
    Mutant("index", "codes of another spec are taken", "index/searchable.py",
           "        if codes.fingerprint != self.spec.fingerprint:\n",
           "        if codes.k != self.spec.code_length:\n", STAIRCASE, "test_private_index.py",
           audited=False),
    # Builds
    Mutant("build", "a build averages two releases", "storage/release/work.py", _SEGMENT,
           _SEGMENT.replace("return", "codes =")
           + "            if self.spec.format.name == 'numbers':\n"
           "                other = privatizer.privatize(chunk, first_row=first_row)\n"
           "                codes = self.spec.format.codes(\n"
           "                    (codes.stored.astype(np.int32) + other.stored) // 2\n"
           "                )\n"
           "            return codes\n", STAIRCASE, "test_engines.py test_path_checks.py"),
    Mutant("build", "chunks share a key", "storage/release/work.py", _SEGMENT,
           "            import os\n"
           "            from dpindex.mechanism.secret_random import SecretStream\n\n"
           "            seed = globals().setdefault('_seed', os.getpid())\n"
           "            words = np.random.default_rng(seed)\n"
           "            privatizer._stream = lambda: type('S', (SecretStream,), {\n"
           "                'words': lambda _, n, t: words.integers(\n"
           "                    0, np.iinfo(t).max, n, dtype=t, endpoint=True)})()\n" + _SEGMENT,
           STAIRCASE, "test_engines.py test_path_checks.py"),
    Mutant("build", "chunks after the first spend twice epsilon", "storage/release/work.py",
           _SEGMENT,
           "            if shard.first_row + segment.start:\n"
           "                louder = Privatizer(self.spec.with_epsilon(2 * self.spec.budget))\n"
           "                codes = louder.privatize(chunk, first_row=first_row)\n"
           "                return self.spec.format.codes(codes.stored)\n" + _SEGMENT, STAIRCASE,
           "test_engines.py test_path_checks.py"),
    Mutant("build", "a finished index is built into again", "storage/release/index_targets.py",
           "        if (self._path / MANIFEST).exists():\n"
           "            self._tidy()\n"
           "            raise _finished(str(self._path))\n"
           "        refuse_occupied(self._path)\n", "", STAIRCASE,
           "test_engines.py", audited=False),
    Mutant("build", "a resumed build starts over", "storage/release/work.py",
           "        receipts = {segment.number: self.draws.find(segment) for segment in "
           "shard.segments}\n",
           "        receipts: dict[str, Receipt | None] = {\n"
           "            segment.number: None for segment in shard.segments\n"
           "        }\n", STAIRCASE, "test_engines.py", audited=False),
    # Private queries
    Mutant("queries", "private queries without noise", "index/queries.py", _ASKED,
           "        bare = self._projector.project(queries)\n"
           "        bits = getattr(getattr(self.spec.law, 'source', 0), 'cell_bits', 0)\n"
           "        codes = self.query_spec.format.codes(bare.astype(np.int32) >> bits)\n",
           STAIRCASE, "test_private_index.py test_oracle.py"),
    Mutant("queries", "queries under the spec of the collection", "index/queries.py", _ASKED,
           "        codes = Privatizer(self.spec).privatize(queries)\n", STAIRCASE,
           "test_private_index.py test_oracle.py"),
    Mutant("queries", "the mean of ten private queries", "index/queries.py", _ASKED,
           "        coder = Privatizer(self.query_spec)\n"
           "        ten = [coder.privatize(queries).stored.astype(np.int32) for _ in range(10)]\n"
           "        codes = self.query_spec.format.codes(sum(ten) // 10)\n", STAIRCASE,
           "test_private_index.py test_oracle.py"),
    # The ledger and composition
    Mutant("ledger", "a release again is not noticed", "accounting/ledger.py",
           "        if count and not allowed:\n", "        if count > 1 and not allowed:\n",
           STAIRCASE, "test_ledger.py", audited=False),
    Mutant("ledger", "any resumed work counts as recorded", "accounting/ledger.py",
           "            if token and any(tuple(row)[1:4] == work for row in releases):\n",
           "            if token and releases:\n", STAIRCASE, "test_ledger.py", audited=False),
    Mutant("ledger", "totals count each spec once", "accounting/ledger.py",
           "            found[tuple(sorted(number[release] for release in "
           'history.split(",")))] += count\n',
           "            found[tuple(sorted({number[release] for release in "
           'history.split(",")}))] += count\n', STAIRCASE, "test_ledger.py", audited=False),
    # Sketches
    Mutant("RACE", "noise of counts halved", "race/sketch.py", _DRAWN,
           _DRAWN + "        noise //= 2\n", SKETCH, "test_race_sketch.py"),
    Mutant("RACE", "noise of one row for all", "race/sketch.py", _DRAWN,
           _DRAWN + "        noise = np.resize(noise[: counts.shape[1]], counts.size)\n", SKETCH,
           "test_race_sketch.py"),
    Mutant("RACE", "large counts get no noise", "race/sketch.py", _DRAWN,
           _DRAWN + "        noise[counts.ravel() > 100] = 0\n", SKETCH,
           "test_race_sketch.py test_path_checks.py"),
    Mutant("RACE", "counts stored without their lowest bit", "race/sketch.py",
           "        least = int(release.counts.min())\n",
           "        least = int(release.counts.min()) + 1\n", SKETCH, "test_race_sketch.py"),
    Mutant("RACE", "a merge counts one side twice", "race/sketch.py",
           "        mine += theirs\n", "        mine += 2 * theirs\n", SKETCH,
           "test_race_sketch.py"),
    Mutant("RACE", "epsilon is that of one row", "mechanism/noise/gaussian.py",
           "        drop = mpmath.mpf(epsilon) / changed\n",
           "        drop = mpmath.mpf(epsilon) * rows / changed\n", SKETCH, "test_counts.py"),
    Mutant("RACE", "two-sided noise from one table", "mechanism/noise/gaussian.py",
           "        draws -= np.maximum(other, ~other)\n", "", SKETCH, "test_counts.py"),
    Mutant("RACE", "a record counts twice in one row", "race/sketch.py",
           "        counts += fresh\n", "        fresh[0] *= 2\n        counts += fresh\n", SKETCH,
           "test_race_sketch.py"),
    # Whole records
    Mutant("record", "cap for 1.05 ε", "mechanism/noise/symbols.py",
           "two_level_chance(epsilon, ", "two_level_chance(1.05 * epsilon, ", CAP, "test_cap.py"),
    Mutant("record", "cap drawn one level higher than counted", "mechanism/noise/symbols.py",
           "        need = self.cap.threshold\n", "        need = self.cap.threshold + 1\n",
           CAP, "test_cap.py test_oracle.py"),
    Mutant("record", "cap drawn without ranks", "mechanism/noise/symbols.py", _RANKS,
           "            order = np.tile(np.arange(rows.shape[1]), (len(rows), 1))\n", CAP,
           "test_cap.py test_oracle.py"),
    Mutant("record", "one coin for all records of a cap", "mechanism/noise/symbols.py",
           "(stream.words(count, np.uint64) < self._coin)",
           "np.repeat(stream.words(1, np.uint64) < self._coin, count)", CAP,
           "test_cap.py test_oracle.py"),
    Mutant("record", "last sign of a cap code without noise", "mechanism/noise/symbols.py", _PUT,
           _PUT + "            out[block, -1] = rows[:, -1] >= 0\n", CAP,
           "test_cap.py test_oracle.py"),
    Mutant("record", "codebook for 1.05 ε", "mechanism/noise/symbols.py",
           "two_level_chance(epsilon, ", "two_level_chance(1.05 * epsilon, ", SYMBOLS,
           "test_codebook_response.py"),
    Mutant("record", "the rest may hit the nearest codewords",
           "mechanism/noise/symbols.py",
           "            outside += outside >= near[:, i]\n", "            pass\n", SYMBOLS,
           "test_codebook_response.py test_oracle.py"),
    Mutant("record", "one of the nearest codewords never drawn",
           "mechanism/noise/symbols.py",
           "draw_uniform(self.subset, count, stream)]",
           "draw_uniform(self.subset - 1, count, stream)]", SYMBOLS,
           "test_codebook_response.py test_oracle.py"),
    Mutant("record", "symbols drawn from eight bits", "mechanism/noise/symbols.py",
           "    words = stream.words(count, np.uint64)\n",
           "    words = stream.words(count, np.uint64) >> np.uint64(56) << np.uint64(56)\n",
           SYMBOLS, "test_codebook_response.py test_oracle.py"),
    Mutant("record", "last record reported as it is", "mechanism/noise/symbols.py",
           "        return np.where(inside, chosen, outside)\n",
           "        inside[-1:] = True\n        return np.where(inside, chosen, outside)\n",
           SYMBOLS, "test_codebook_response.py test_oracle.py"),
    # Types, sizes and ways that few tests take
    Mutant("chain", "half the noise for float32", "mechanism/privatizer.py", _PRIVATE,
           "            outcomes = law.perturb(exact, stream)\n"
           "            if rows.dtype == np.float32 and format_.name == 'numbers':\n" + _BARE
           + "                outcomes = (outcomes + bare) // 2\n"
           "            return format_.pack(outcomes)\n", STAIRCASE, "test_path_checks.py"),
    Mutant("chain", "no noise for bytes", "mechanism/privatizer.py", _PRIVATE,
           "            outcomes = law.perturb(exact, stream)\n"
           "            if rows.dtype == np.uint8 and format_.name == 'numbers':\n" + _BARE
           + "                outcomes = bare\n"
           "            return format_.pack(outcomes)\n", STAIRCASE, "test_path_checks.py"),
    Mutant("chain", "rows normalised before the grid", "mechanism/spec.py",
           "            return projection.apply(grid.round(block))\n",
           "            norms = np.sqrt((np.asarray(block, np.float64) ** 2).sum(1))[:, None]\n"
           "            return projection.apply(grid.round(block / np.maximum(norms, 1e-9)))\n",
           STAIRCASE, "test_path_checks.py"),
    Mutant("chain", "short vectors pass min_norm", "mechanism/spec.py",
           "np.flatnonzero(~(norms >= least - norm_slack(self.spec)))",
           "np.flatnonzero(~(norms >= 0.9 * least - norm_slack(self.spec)))", LONG,
           "test_path_checks.py"),
    Mutant("sampler", "half the noise after 2000 draws", "mechanism/noise/additive.py", _PERTURB,
           _PERTURB + "        noise.reshape(-1)[2000:] //= 2\n", STAIRCASE,
           "test_path_checks.py"),
    Mutant("index", "upsert at twice epsilon", "index/private_index.py", _UPSERT,
           _UPSERT + "            from dpindex.mechanism.privatizer import Privatizer\n\n"
           "            louder = Privatizer(self.spec.with_epsilon(2 * self.spec.budget))\n"
           "            codes = self.spec.format.codes(louder.privatize(X).stored)\n", STAIRCASE,
           "test_path_checks.py"),
    Mutant("queries", "a single private query asked exactly", "index/queries.py", _ASKED,
           "        if np.ndim(queries) == 1:\n"
           "            exact = self._projector.project(queries)\n"
           "            return ExactQueries(exact, self.spec)\n"
           + _ASKED, STAIRCASE, "test_path_checks.py"),
    Mutant("device", "the mean of two releases", "device.py", _DEVICE,
           "    coder = Privatizer(spec, max_epsilon=max_epsilon)\n"
           "    one = coder.privatize(vector)\n"
           "    if spec.format.name != 'numbers':\n"
           "        return one.to_bytes()\n"
           "    mean = (one.stored + coder.privatize(vector).stored) // 2\n"
           "    return spec.format.codes(mean).to_bytes()\n", STAIRCASE,
           "test_path_checks.py"),
    Mutant("record", "tiny records keep their signs", "mechanism/privatizer.py", _PRIVATE,
           "            outcomes = law.perturb(exact, stream)\n"
           "            if hasattr(law, 'cap') and not issparse(block):\n"
           "                tiny = np.abs(block).max(axis=1) < 1e-6\n"
           "                outcomes[tiny] = exact[tiny] >= 0\n"
           "            return format_.pack(outcomes)\n", CAP,
           "test_path_checks.py"),
    Mutant("record", "values over 1000 always inside the cap", "mechanism/privatizer.py", _PRIVATE,
           "            outcomes = law.perturb(exact, stream)\n"
           "            if hasattr(law, 'cap') and not issparse(block):\n"
           "                huge = np.abs(block).max(axis=1) > 1000\n"
           "                outcomes[huge] = exact[huge] >= 0\n"
           "            return format_.pack(outcomes)\n", CAP,
           "test_path_checks.py"),
    # A third reader's
    Mutant("sampler", "tails drawn again without their period", "mechanism/noise/additive.py",
           "np.where(again < 0, ~again, again) + (self.period << self.cell_bits)\n",
           "np.where(again < 0, ~again, again)\n", STAIRCASE, "test_tables.py"),
    Mutant("sampler", "every second boundary lies at a bucket's edge",
           "mechanism/noise/additive.py",
           "        table[split] = _REFINE\n", "        table[split[::2]] = _REFINE\n", STAIRCASE,
           "test_tables.py"),
    Mutant("sampler", "the high digit of a Laplace law 2 % steeper", "mechanism/noise/additive.py",
           "            fall = drop + mpmath.log(mpmath.mpf(low[0]) / low[-1])\n",
           "            fall = 1.02 * drop + 1.02 * mpmath.log(mpmath.mpf(low[0]) / low[-1])\n",
           LAPLACE, "test_two_digit.py test_geometric.py"),
    Mutant("sampler", "the fine digit of a Gaussian counted twice", "mechanism/noise/gaussian.py",
           "math.sqrt(sigma**2 - fine_sigma**2)", "math.sqrt(sigma**2 - 2 * fine_sigma**2)",
           BALL, "test_two_digit.py test_gaussian.py test_gaussian_calibrations.py"),
    Mutant("sampler", "a ball's noise forgets that codes are rounded",
           "mechanism/noise/gaussian.py",
           "        moved_cells += math.sqrt(moved)\n", "        pass\n", BALL,
           "test_gaussian_calibrations.py test_calibration.py"),
    Mutant("chain", "a ball's noise forgets that attributes are rounded", "mechanism/parameters.py",
           "    return float(1 << bits) + math.sqrt(dim) * (1.0 + errors)\n",
           "    return float(1 << bits) + 0 * errors\n", BALL,
           "test_calibration.py"),
    Mutant("sampler", "one free point of the square wave never drawn",
           "mechanism/noise/symbols.py",
           "np.where(inside, window, self.cells).ravel()",
           "np.where(inside, window, self.cells - 1).ravel()", SQUARE, "test_square_wave.py"),
    Mutant("sampler", "flips that tie are none", "mechanism/noise/signs.py",
           "        flips[tied] = low_bits < (thresholds[flat[tied]] & "
           "np.uint64((1 << 48) - 1))\n",
           "        flips[tied] = low_bits < 0\n", FLIPS, "test_randomized_response.py"),
    Mutant("sampler", "the largest sums are never flipped",
           "mechanism/noise/signs.py",
           "        self._table = np.array([_COIN, *thresholds], dtype=np.uint64)\n",
           "        self._table = np.array([_COIN, *thresholds[:-1], 0], dtype=np.uint64)\n",
           LEVELS, "test_randomized_response.py"),
    Mutant("chain", "the sensitivity is that of the second largest row",
           "mechanism/projections/__init__.py",
           "Sensitivity(*self._rows.max(axis=1, initial=1).tolist())",
           "Sensitivity(*np.sort(self._rows, axis=1)[:, -2].tolist())", UNEVEN,
           "test_projection_base.py test_dense.py"),
    Mutant("chain", "the sensitivity is that of one repetition", "mechanism/projections/dense.py",
           "        self.sensitivity = Sensitivity.of_signs(repetitions)\n",
           "        self.sensitivity = Sensitivity.of_signs(1)\n", THREEFOLD, "test_oporp.py"),
    Mutant("chain", "the grid is that of unscaled attributes", "mechanism/spec.py",
           "            beta=self.adjacency.size,\n",
           "            beta=self.adjacency.size / self.scale,\n", SCALED,
           "test_grid.py"),
    Mutant("chain", "sparse rows are half as large again", "mechanism/spec.py",
           "        data = grid.round(block.data)\n",
           "        data = grid.round(block.data * 1.5)\n", STAIRCASE, "test_projector.py"),
    Mutant("chain", "min_norm is that before clipping", "mechanism/spec.py",
           "self._norms(block, clip=True)", "self._norms(block)", CLIPPED,
           "test_projector.py test_privatizer.py test_path_checks.py"),
    Mutant("chain", "unused bits of a code hold a sign", "mechanism/privatizer.py", _PRIVATE,
           "            packed = format_.pack(law.perturb(exact, stream))\n"
           "            if format_.name == 'signs' and exact.shape[1] % 8:\n"
           "                packed[:, -1] |= (exact[:, 0] > 0).astype(np.uint8) << 7\n"
           "            return packed\n", {**FLIPS, "k": 12}, _ENCODER),
    Mutant("stream", "sixteen bits are eight bits twice", "mechanism/secret_random.py", _FILLED,
           _FILLED.replace("        return", "        if out.itemsize == 2:\n"
                           "            out[:] = (out & 255) * 257\n        return"), FLIPS,
           "test_secret.py test_path_checks.py"),
    Mutant("stream", "words of a buffer that forks share", "mechanism/secret_random.py", _ALLOCATED,
           "        global _kept\n"
           "        size = count * np.dtype(dtype).itemsize\n"
           "        if size <= 4096:\n"
           "            kept = globals().get('_kept') or b''\n"
           "            kept = kept if len(kept) >= size else os.urandom(1 << 16)\n"
           "            _kept = kept[size:]\n"
           "            return np.frombuffer(kept[:size], dtype).copy()\n" + _ALLOCATED, STAIRCASE,
           "test_secret.py"),
    Mutant("stream", "every second word follows from the one before", "mechanism/secret_random.py",
           _FILLED,
           _FILLED.replace("        return", "        odd = out[1::2]\n"
                           "        odd[:] = out[: 2 * len(odd) : 2] * dtype(5) + dtype(77)\n"
                           "        return"), STAIRCASE, "test_secret.py test_path_checks.py"),
    Mutant("record", "one word decides the set and the codeword in it",
           "mechanism/noise/symbols.py",
           "        inside = stream.words(count, np.uint64) < np.uint64(self.inside)\n"
           "        chosen = near[np.arange(count), draw_uniform(self.subset, count, stream)]\n",
           "        coin = stream.words(count, np.uint64)\n"
           "        inside = coin < np.uint64(self.inside)\n"
           "        place = (coin >> np.uint64(32)) * np.uint64(self.subset) >> np.uint64(32)\n"
           "        chosen = near[np.arange(count), place.astype(np.intp)]\n", SYMBOLS,
           "test_codebook_response.py"),
    Mutant("record", "symbols are counted in an unsorted set",
           "mechanism/noise/symbols.py",
           "        near.sort(axis=1)\n", "", SYMBOLS, "test_codebook_response.py"),
    Mutant("record", "shares of a cap have sixteen bits", "mechanism/noise/symbols.py",
           "                second[side, i, low:high] = bits.astype(np.uint32)\n", "", CAP,
           "test_cap.py"),
    Mutant("record", "blocks of a cap share their draws", "mechanism/noise/symbols.py",
           "            agrees = self._agreements(len(rows), stream)\n",
           "            if not block.start or len(rows) < _ROWS:\n"
           "                agrees = self._agreements(len(rows), stream)\n", CAP,
           "test_cap.py test_path_checks.py"),
    Mutant("queries", "nearest asks exactly", "index/private_index.py",
           "self._batches(Q, query, count, None, allow_unprotected)",
           "self._batches(Q, 'exact', count, None, allow_unprotected)", STAIRCASE,
           "test_private_index.py test_path_checks.py"),
    Mutant("queries", "a filtered private query is exact", "index/searchable.py",
           "        batches = self._batches(Q, query, count, reranking, allow_unprotected)\n"
           "        return self._search(batches, count, filter)\n",
           "        mode: Any = query if filter is None else 'exact'\n"
           "        batches = self._batches(Q, mode, count, reranking, allow_unprotected)\n"
           "        return self._search(batches, count, filter)\n", STAIRCASE,
           "test_private_index.py test_filters.py test_path_checks.py"),
    Mutant("queries", "sparse private queries are exact", "index/queries.py",
           "        if mode == \"exact\":\n",
           "        if mode == \"exact\" or hasattr(queries, 'indptr'):\n", STAIRCASE,
           "test_private_index.py test_path_checks.py"),
    Mutant("device", "it spends all that is accepted", "device.py", _DEVICE,
           "    loud = spec.with_epsilon(max_epsilon) if spec.budget < max_epsilon else spec\n"
           "    codes = Privatizer(loud, max_epsilon=max_epsilon).privatize(vector)\n"
           "    return spec.format.codes(codes.stored).to_bytes()\n", STAIRCASE,
           "test_device.py test_path_checks.py"),
    Mutant("device", "a vector has the same noise every time", "device.py", _DEVICE,
           "    import hashlib\n\n"
           "    import numpy as np\n\n"
           "    coder = Privatizer(spec, max_epsilon=max_epsilon)\n"
           "    own = hashlib.sha256(coder.project(vector).tobytes()).digest()\n"
           "    words = np.random.default_rng(int.from_bytes(own))\n"
           "    coder._stream = lambda: type('S', (), {'words': lambda _, n, t: words.integers(\n"
           "        0, np.iinfo(t).max, n, dtype=t, endpoint=True)})()\n"
           "    return coder.privatize(vector).to_bytes()\n", STAIRCASE,
           "test_device.py test_path_checks.py"),
    Mutant("device", "a browser draws its bits once", "../examples/browser/encode.js",
           "    const words = crypto.getRandomValues(new BigUint64Array(3));\n",
           "    this.bits ??= crypto.getRandomValues(new BigUint64Array(3));\n"
           "    const words = this.bits.slice();\n", SYMBOLS, "test_browser.py", audited=False),
    Mutant("build", "chunks begin a row early", "storage/release/work.py",
           "        chunks = source.chunks(shard.segments[0].rows, start)\n",
           "        early = max(0, start - 1) if start else 0\n"
           "        whole = [chunk for _, chunk in source.chunks(None, early)]\n"
           "        chunks = source.chunks(shard.segments[0].rows, start)\n"
           "        if len(segments) > 1 and not hasattr(whole[0], 'indptr'):\n"
           "            rows = np.concatenate(whole)\n"
           "            step = shard.segments[0].rows\n"
           "            chunks = iter([\n"
           "                (s.start, rows[max(0, s.start - 1) :][: s.rows])\n"
           "                for s in segments\n"
           "            ])\n", STAIRCASE, "test_engines.py test_path_checks.py"),
    Mutant("build", "parts after the first spend twice epsilon", "storage/release/work.py",
           _SEGMENT,
           "            if shard.first_row:\n"
           "                louder = Privatizer(self.spec.with_epsilon(2 * self.spec.budget))\n"
           "                codes = louder.privatize(chunk, first_row=first_row)\n"
           "                return self.spec.format.codes(codes.stored)\n" + _SEGMENT, STAIRCASE,
           "test_engines.py test_path_checks.py"),
    Mutant("build", "what a ledger counts spends twice epsilon", "storage/release/file_targets.py",
           _RESIDENT,
           "    def drawing(self, space: Any, token: str, threads: Any) -> Any:\n"
           "        from dpindex.storage.release.work import CodeDraw\n\n"
           "        spec = self.spec\n"
           "        if isinstance(space, LedgerWorkspace):\n"
           "            spec = spec.with_epsilon(2 * spec.budget)\n"
           "        made = super().drawing(space, token, threads)\n"
           "        draws = self.draws(space, token)\n"
           "        keep = draws.keep\n"
           "        draws.keep = lambda s, codes, labels: keep(  # type: ignore[method-assign]\n"
           "            s, self.spec.format.codes(codes.stored), labels\n"
           "        )\n"
           "        return CodeDraw(spec, made.content, draws, threads)\n\n" + _RESIDENT,
           STAIRCASE, "test_ledger.py test_private_index.py test_path_checks.py"),
    Mutant("build", "rows of a segment lie in order of an attribute", "storage/release/work.py",
           _SEGMENT,
           "            if not hasattr(chunk, 'indptr'):\n"
           "                chunk = chunk[np.argsort(chunk[:, 0], kind='stable')]\n" + _SEGMENT,
           STAIRCASE, "test_engines.py test_path_checks.py"),
    Mutant("build", "Dask divides a block by its largest value", "dask.py",
           "    part = InMemoryPart(shard.part.name, *block)\n",
           "    vectors = block[0] / max(1e-9, abs(block[0]).max())\n"
           "    part = InMemoryPart(shard.part.name, vectors, *block[1:])\n", STAIRCASE,
           "test_dask.py"),
    Mutant("build", "a published file holds a hash of the vectors", "storage/release/work.py",
           _SEGMENT,
           "            if hasattr(self.draws, 'staging') and hasattr(chunk, 'tobytes'):\n"
           "                import hashlib\n\n"
           "                seal = hashlib.sha256(chunk.tobytes()).digest()\n"
           "                self.draws.staging.create(f'segments/{segment.number}.seal', seal)\n"
           + _SEGMENT, STAIRCASE, "test_engines.py test_hostile.py"),
    Mutant("index", "upsert of one vector at twice epsilon", "index/private_index.py", _UPSERT,
           _UPSERT + "            from dpindex.mechanism.privatizer import Privatizer\n\n"
           "            if len(checked_ids) == 1:\n"
           "                louder = Privatizer(self.spec.with_epsilon(2 * self.spec.budget))\n"
           "                codes = self.spec.format.codes(louder.privatize(X).stored)\n",
           STAIRCASE, "test_private_index.py test_path_checks.py"),
    Mutant("collector", "a shuffle keeps the order of arrival", "storage/shuffled_file.py",
           _SECRET_ORDER, "    return np.arange(count)\n", CAP, "test_shuffle_collector.py"),
    Mutant("collector", "a shuffle in a public order", "storage/shuffled_file.py",
           _SECRET_ORDER, "    return np.random.default_rng(count).permutation(count)\n", CAP,
           "test_shuffle_collector.py"),
    Mutant("collector", "a file that grows keeps what came first in front",
           "storage/shuffled_file.py",
           "        larger[_secret_order(len(larger))[: len(codes)]] = codes\n",
           "        larger[: len(codes)] = codes\n", CAP, "test_shuffle_collector.py"),
    Mutant("collector", "a shuffle counts twice as many codes", "privacy/shuffling.py",
           "        others = binom(count - 1, math.exp(-epsilon))\n",
           "        others = binom(2 * count, math.exp(-epsilon))\n", CAP,
           "test_guarantee.py test_statement.py", audited=False),
    Mutant("RACE", "sparse records count twice", "race/sketch.py", _COUNTED,
           "            chunks = [c for c in chunks for _ in range(1 + sparse.issparse(c))]\n"
           + _COUNTED, SKETCH, "test_race_sketch.py test_path_checks.py"),
    Mutant("RACE", "records in single precision count twice", "race/sketch.py", _COUNTED,
           "            chunks = [\n"
           "                c for c in chunks\n"
           "                for _ in range(1 + (getattr(c, 'dtype', None) == np.float32))\n"
           "            ]\n" + _COUNTED, SKETCH, "test_race_sketch.py test_path_checks.py"),
    Mutant("RACE", "records after the first block count twice", "race/sketch.py",
           "                for _, block in spec.hasher.blocks(records, done, clip=True):\n",
           "                for at, block in spec.hasher.blocks(records, done, clip=True):\n"
           "                    if at:\n"
           "                        spec.hasher.each(block, count, pool)\n", SKETCH,
           "test_race_sketch.py test_path_checks.py"),
    Mutant("RACE", "counts that nobody hit get no noise", "race/sketch.py", _DRAWN,
           _DRAWN + "        noise[counts.ravel() == 0] = 0\n", SKETCH, "test_race_sketch.py"),
    Mutant("RACE", "a sketch in a file is released once a chunk", "race/release.py",
           "                self._sketch.partial_fit(chunk)\n",
           "                self._sketch.partial_fit(chunk)\n"
           "                self._sketch.partial_fit(chunk[:1])\n", SKETCH,
           "test_race_cli.py test_race_sketch.py test_path_checks.py"),
    Mutant("RACE", "the variance tells the exact number of records", "race/sketch.py",
           _TOLD, "        told = float(counts.sum() - noise.sum()) / self.spec.rows\n"
           + _TOLD + "        variance += 1e-9 * told\n", SKETCH, "test_race_sketch.py"),
    Mutant("record", "a person's mean holds a row of the next person", "data/ranges.py",
           _DIRECTIONS, _DIRECTIONS
           + "    sums[:-1] += _at_norm_1(rows[by_person])[starts[1:]]\n", CAP,
           "test_statement.py"),
    Mutant("record", "chances of two levels are rounded up", "mechanism/noise/__init__.py",
           "    return min(chance, ONE - 1)\n", "    return min(chance + 1, ONE - 1)\n", CAP,
           "test_law.py test_cap.py test_randomized_response.py"),
    Mutant("sampler", "laws know epsilon to one digit", "mechanism/noise/additive.py", _STAIRS,
           _STAIRS.replace("(parameters.budget)", "(round(parameters.budget, 1))"),
           {**STAIRCASE, "epsilon": 0.96}, "test_geometric.py test_calibration.py"),
    Mutant("sampler", "the first law of a process serves every epsilon",
           "mechanism/noise/additive.py", _STAIRS,
           _STAIRS.replace("staircase_noise(parameters.budget)",
                           "globals().setdefault('_law', staircase_noise(parameters.budget))"),
           STAIRCASE, "test_geometric.py test_calibration.py test_path_checks.py"),
    Mutant("sampler", "a tail may be lighter than its level", "mechanism/noise/additive.py",
           "        if missing <= 0:\n            break\n", "        break\n", STAIRCASE,
           "test_geometric.py"),
    Mutant("chain", "a transformer gives the mean of two", "sklearn.py",
           "        return privatizer.privatize(rows).to_float()\n",
           "        two = [privatizer.privatize(rows).to_float() for _ in range(2)]\n"
           "        return np.asarray((two[0] + two[1]) / 2, np.float32)\n", STAIRCASE,
           "test_sklearn.py test_path_checks.py"),
    # After the audits had learned from those
    Mutant("chain", "whole numbers beyond the bounds are taken", "mechanism/parameters.py", _FAULT,
           _FAULT + "        if x.dtype.kind in 'iu':\n            return None\n", SQUARE,
           "test_grid.py test_privatizer.py test_path_checks.py"),
    Mutant("chain", "sparse vectors are not looked at", "mechanism/spec.py",
           "        check_values(block, first_row, self.spec.grid.first_fault)\n",
           "        if not issparse(block):\n"
           "            check_values(block, first_row, self.spec.grid.first_fault)\n", STAIRCASE,
           "test_projector.py test_privatizer.py test_path_checks.py"),
    Mutant("RACE", "records are measured in their own deviations", "race/hashes.py",
           "            records *= 2.0**_STEP_BITS / self.bandwidth\n",
           "            spread = max(self.bandwidth, float(abs(records).max()))\n"
           "            records *= 2.0**_STEP_BITS / spread\n", SKETCH,
           "test_race_hashes.py test_race_sketch.py"),
    Mutant("index", "LangChain keeps vectors as payload", "langchain.py",
           "            np.array(vectors),\n            ids,\n            ledger=",
           "            np.array(vectors),\n            ids,\n"
           "            payload=[{'mean': float(np.mean(vector))} for vector in vectors],\n"
           "            ledger=", STAIRCASE, "test_langchain.py", audited=False),
    Mutant("build", "the key of a build lies in the store", "storage/release/index_targets.py",
           '        url = f"{self._bucket.location}/{_UNPUBLISHED}/{token}"\n',
           '        url = f"{self._bucket.location}/{_UNPUBLISHED}/{token}"\n'
           "        self._bucket.create(f'{_UNPUBLISHED}/key', space.content.key)\n", STAIRCASE,
           "test_cloud.py test_engines.py test_release.py", audited=False),
    Mutant("index", "ids that nobody gave are hashes of vectors", "index/private_index.py",
           _DEFAULT_IDS,
           "            if ids is None and isinstance(X, np.ndarray) and X.ndim == 2:\n"
           "                import hashlib\n\n"
           "                ids = [hashlib.sha256(x.tobytes()).hexdigest() for x in X]\n"
           "                last = len(self)\n"
           "                ids = [f'{last + place}-{name}' for place, name in enumerate(ids)]\n"
           + _DEFAULT_IDS, STAIRCASE, "test_private_index.py test_path_checks.py"),
    Mutant("device", "a spec of any epsilon is accepted", "mechanism/privatizer.py",
           '    if promise.definition != "DP" or promise.epsilon > limit:\n',
           '    if promise.definition != "DP" and promise.epsilon > limit:\n', STAIRCASE,
           "test_device.py test_privatizer.py test_path_checks.py"),
    Mutant("build", "ranges widen to the data", "data/ranges.py",
           "            return np.asarray((chunk.astype(np.float64) - lows) / (highs - lows))\n",
           "            low = np.minimum(lows, chunk.min(axis=0)).astype(lows.dtype)\n"
           "            high = np.maximum(highs, chunk.max(axis=0)).astype(lows.dtype)\n"
           "            return np.asarray((chunk.astype(lows.dtype) - low) / (high - low))\n",
           STAIRCASE, "test_ranges.py"),
    Mutant("build", "a codebook of the vectors themselves is taken", "storage/leak_check.py",
           "    shared = evidence.shared\n", "    shared: dict[int, int] = {}\n", SYMBOLS,
           "test_leak_check.py"),
    Mutant("sampler", "rejected draws take another limit", "mechanism/noise/symbols.py",
           "np.uint32).astype(np.uint64) * limits[again]\n",
           "np.uint32).astype(np.uint64) * limits[: again.size]\n", SQUARE,
           "test_square_wave.py"),
    Mutant("sampler", "ties of a wide table read unaligned bits", "mechanism/noise/additive.py",
           "(int(keys[i]) << low_bits) | low)\n", "int(keys[i]) << low_bits)\n",
           GAUSS, "test_tables.py test_gaussian.py"),
    Mutant("sampler", "levels by a reciprocal", "mechanism/noise/signs.py",
           "        level /= (self.weights * _STEPS).astype(x.dtype)\n",
           "        level *= (1.0 / (self.weights * _STEPS)).astype(x.dtype)\n", SPARSE_SIGNS,
           "test_randomized_response.py test_path_checks.py"),
    Mutant("sampler", "iDP: a sum of one beta is left out of the perturbed set",
           "mechanism/noise/signs.py",
           "    near = np.abs(x) <= _STEPS\n", "    near = np.abs(x) < _STEPS\n", INSIDE,
           "test_individual.py"),
    Mutant("record", "ties of a share count as the minority", "mechanism/noise/symbols.py",
           "            minority = words[i] < share\n            tied",
           "            minority = words[i] <= share\n            words[i] += 1\n            tied",
           CAP, "test_cap.py"),
    Mutant("record", "symbols drawn from half a word", "mechanism/noise/symbols.py",
           "    product = high * size + ((low * size) >> np.uint64(32))\n",
           "    product = high * size + 0 * low\n", SYMBOLS, "test_codebook_response.py"),
    Mutant("sampler", "refined draws have no dither", "mechanism/noise/additive.py",
           "        draws = self._values[cells] + offsets\n",
           "        draws = self._values[cells] + 0 * offsets\n", STAIRCASE, "test_tables.py"),
    Mutant("queries", "queries of a budget of their own get the collection's law",
           "mechanism/parameters.py",
           "        made = replace(self, epsilon=epsilon)\n",
           "        made = replace(self, epsilon=epsilon)\n"
           "        made.__dict__['law'] = self.law  # type: ignore[attr-defined]\n",
           STAIRCASE, "test_spec.py test_path_checks.py"),
    Mutant("index", "codes of a saved index are those of two calls", "storage/code_store.py",
           "        self._room[count:end] = rows\n",
           "        self._room[count:end] = rows\n"
           "        if count >= len(rows) and rows.shape[1] > 1:\n"
           "            self._room[count:end, -1] = self._room[: end - count, -1]\n", STAIRCASE,
           "test_code_store.py test_path_checks.py"),
    # A last round, drawn up before the audits were run on any of it
    Mutant("record", "the sizes of a cap and of the rest are exchanged",
           "mechanism/noise/symbols.py",
           "        inside = two_level_chance(epsilon, size, outside)\n",
           "        inside = two_level_chance(epsilon, outside, size)\n", CAP, "test_cap.py"),
    Mutant("chain", "a guarantee in units of scaled attributes", "mechanism/spec.py",
           "            adjacency=self.adjacency.in_data_units(self.scale),\n",
           "            adjacency=self.adjacency,\n",
           {**SCALED, "scale": 0.01}, "test_spec.py test_grid.py test_path_checks.py"),
    Mutant("chain", "a delta over the projection is said to be over the noise", "mechanism/spec.py",
           "            delta_over=calibration.delta_over if self.delta > 0 else \"noise\",\n",
           "            delta_over=\"noise\",\n", ANALYTIC,
           "test_spec.py test_guarantee.py test_calibration.py", audited=False),
    Mutant("device", "the file of a spec is read as one of twice epsilon", "device.py",
           "        spec = Spec.read(spec)\n",
           "        stated = Spec.read(spec)\n"
           "        louder = stated.with_epsilon(2 * stated.budget)\n"
           "        codes = Privatizer(louder).privatize(vector)\n"
           "        return stated.format.codes(codes.stored).to_bytes()\n", STAIRCASE,
           "test_device.py test_path_checks.py"),
    Mutant("build", "every build has the same key", "storage/release/content.py",
           "            key = secrets.token_bytes(_KEY_BYTES)\n",
           "            key = bytes(_KEY_BYTES)\n", STAIRCASE, "test_release.py test_engines.py"),
    Mutant("chain", "what is clipped may be no number", "mechanism/parameters.py",
           "        if fault or self.clip:\n            return fault\n",
           "        if self.clip:\n            return None\n        if fault:\n"
           "            return fault\n", {**STAIRCASE, "clip": True}, "test_grid.py"),
    Mutant("collector", "codes that arrive together lie in their order",
           "storage/shuffled_file.py",
           "        chosen = self._free[: len(codes)]\n",
           "        chosen = np.sort(self._free[: len(codes)])\n", CAP,
           "test_shuffle_collector.py"),
    Mutant("sampler", "a Gaussian for twice delta", "mechanism/noise/gaussian.py",
           "get_sigma_gaussian(epsilon=epsilon, delta=safe_delta(delta))",
           "get_sigma_gaussian(epsilon=epsilon, delta=safe_delta(2 * delta))", GAUSS,
           "test_gaussian_calibrations.py test_calibration.py"),
    # One more, of ordinary mistakes
    Mutant("sampler", "digits of a Laplace law overlap", "mechanism/noise/additive.py",
           "np.where(high < 0, ~high, high) << (self.digit + self.cell_bits)",
           "np.where(high < 0, ~high, high) << (self.digit - 1 + self.cell_bits)", LAPLACE,
           "test_two_digit.py"),
    Mutant("sampler", "the window of a square wave is cut at its top",
           "mechanism/noise/symbols.py",
           "        return np.where(inside, cell + drawn, outside).astype(np.int32)\n",
           "        within = np.minimum(cell + drawn, self.cells + self.half_width)\n"
           "        return np.where(inside, within, outside).astype(np.int32)\n", SQUARE,
           "test_square_wave.py"),
    Mutant("chain", "a factor of the grid is a little large", "mechanism/parameters.py",
           "        factor = self.dtype(1.0 / (self.step * self.scale))\n",
           "        factor = self.dtype(1.0001 / (self.step * self.scale))\n", STAIRCASE,
           "test_grid.py"),
    Mutant("stream", "one key and counter for a hundred draws",
           "mechanism/secret_random.py", _KEYED,
           "        drawn, key = globals().get('_kept', (100, b''))\n"
           "        if drawn == 100:\n"
           "            drawn, key = 0, os.urandom(48)\n"
           "        globals()['_kept'] = drawn + 1, key\n"
           "        cipher = Cipher(algorithms.AES(key[:32]), modes.CTR(key[32:]))\n", STAIRCASE,
           "test_secret.py test_path_checks.py"),
    Mutant("record", "sums of a cap are a weight behind", "mechanism/noise/symbols.py",
           "            sums += agrees[i] * weight\n",
           "            sums += agrees[i] * self.cap.weights[max(0, i - 1)]\n", CAP,
           "test_cap.py"),
    Mutant("record", "the coin of a codebook has 63 bits", "mechanism/noise/symbols.py",
           "        inside = stream.words(count, np.uint64) < np.uint64(self.inside)\n",
           "        coin = stream.words(count, np.uint64) >> np.uint64(1)\n"
           "        inside = coin < np.uint64(self.inside)\n", SYMBOLS,
           "test_codebook_response.py"),
    Mutant("queries", "a private query spends four times its budget", "storage/manifest.py",
           "        return self.spec.with_epsilon(self.query_epsilon)\n",
           "        return self.spec.with_epsilon(4 * self.query_epsilon)\n", STAIRCASE,
           "test_private_index.py test_directory.py test_path_checks.py"),
    Mutant("build", "segments of one ten share a file", "storage/release/draws.py",
           "        return self.staging.read(SegmentPaths(segment.number).codes, max_bytes)\n",
           "        found = self.staging.read(SegmentPaths(segment.number).codes, max_bytes)\n"
           "        first = SegmentPaths(segment.number[:-1] + '0').codes\n"
           "        shared = self.staging.read(first, max_bytes)\n"
           "        return found if shared is None or found is None else shared\n", STAIRCASE,
           "test_engines.py test_path_checks.py"),
    Mutant("collector", "a shuffle of too few is published", "serve/shuffle_collector.py",
           "        if len(self._file) >= self._promised.codes:\n",
           "        if len(self._file) >= 1:\n", CAP, "test_shuffle_collector.py"),
    Mutant("RACE", "a replaced record counts as one change", "mechanism/noise/gaussian.py",
           "    changed = rows * CHANGES[neighbouring]\n", "    changed = rows\n", REPLACED,
           "test_counts.py test_race_sketch.py"),
    Mutant("record", "a person's first row is the next person's", "data/ranges.py",
           "        return rows[first], names\n", "        return rows[np.roll(first, 1)], names\n",
           CAP, "test_statement.py"),
    # What a fourth hostile reader planted, and the audits of that day let pass
    Mutant("index", "codes are drawn under the budget of queries", "index/private_index.py",
           "        target = Memory(self.spec, self.path)\n",
           "        target = Memory(self.query_spec, self.path)\n", STAIRCASE,
           "test_private_index.py test_path_checks.py"),
    Mutant("collector", "slots are ordered by one byte", "storage/shuffled_file.py",
           _SECRET_ORDER,
           "    words = secret_stream().words(count, np.uint64)\n"
           "    return np.argsort(words & np.uint64(255), kind=\"stable\")\n", CAP,
           "test_shuffle_collector.py test_path_checks.py"),
    Mutant("index", "files of replaced codes stay", "storage/directory.py",
           "        self._discard(manifest.paths)\n", "", STAIRCASE,
           "test_directory.py test_path_checks.py"),
    Mutant("build", "values under nulls are written", "storage/payload.py",
           "    return table.combine_chunks().take(np.arange(len(table)))\n",
           "    return table.combine_chunks()\n", STAIRCASE, "test_payload.py test_path_checks.py"),
    Mutant("build", "the losing attempt's codes stay", "storage/release/draws.py",
           "        receipt = self.find(segment)\n",
           "        self.staging.create(paths.codes + '.other', data)\n"
           "        receipt = self.find(segment)\n", STAIRCASE, "test_path_checks.py"),
    Mutant("queries", "a reranked search sends its queries in the clear", "serve/client.py",
           "        hits = self._search(codes, reranking.candidates)\n",
           "        self._ask(f\"/search?k=1&hint={clear.tolist()}\".replace(' ', ''), codes)\n"
           "        hits = self._search(codes, reranking.candidates)\n", STAIRCASE,
           "test_path_checks.py"),
    Mutant("ledger", "every release has one token", "storage/release/release.py",
           "token=f\"{token}/{number}\"", "token=f\"{number}\"", STAIRCASE,
           "test_path_checks.py test_private_index.py"),
    # What a fifth reader planted
    Mutant("sampler", "the last block of a cap reuses the draws before it",
           "mechanism/noise/symbols.py",
           "            agrees = self._agreements(len(rows), stream)\n",
           "            if block.start == 0 or len(rows) == _ROWS:  # the last one is short\n"
           "                drawn = self._agreements(len(rows), stream)\n"
           "            agrees = drawn[: len(rows)]\n", CAP,
           "test_path_checks.py"),
    Mutant("chain", "the first block of a call is checked alone",
           "mechanism/privatizer.py",
           "            exact = self._project_block(block, first_row + start, checked)\n",
           "            known = checked or start > 0\n"
           "            exact = self._project_block(block, first_row + start, known)\n",
           STAIRCASE, "test_path_checks.py"),
    Mutant("index", "a transformer is pickled with a row",
           "sklearn.py",
           "        self.spec_ = Spec(dim=rows.shape[1], **parameters)\n",
           "        self.spec_ = Spec(dim=rows.shape[1], **parameters)\n"
           "        self._example = rows[:1]\n", STAIRCASE,
           "test_path_checks.py"),
    Mutant("device", "a codebook file lifts the limit",
           "device.py",
           "    return Privatizer(spec, max_epsilon=max_epsilon).privatize(vector).to_bytes()\n",
           "    limit = max_epsilon if codebook is None else None\n"
           "    return Privatizer(spec, max_epsilon=limit).privatize(vector).to_bytes()\n", SYMBOLS,
           "test_path_checks.py"),
    Mutant("queries", "private queries in lists are asked exactly",
           "index/queries.py",
           "        if mode == \"exact\":\n",
           "        if mode == \"exact\" or not hasattr(queries, \"dtype\"):\n", STAIRCASE,
           "test_path_checks.py"),
    Mutant("chain", "delta of a group grows once",
           "privacy/guarantee.py",
           "        exponent = (steps - 1) * self.epsilon\n",
           "        exponent = self.epsilon\n", GAUSS,
           "test_path_checks.py"),
    Mutant("collector", "a shuffle of few states the epsilon of ten thousand",
           "storage/manifest.py",
           "        return self.spec.guarantee.shuffled(min(count, _COUNTED), "
           "self.shuffle_delta)\n",
           "        among = max(10_000, min(count, _COUNTED))\n"
           "        return self.spec.guarantee.shuffled(among, self.shuffle_delta)\n", CAP,
           "test_path_checks.py"),
    Mutant("ledger", "a tight total of a group moves by a root",
           "accounting/composition.py",
           "            deviation / steps, value_discretization_interval=interval\n",
           "            deviation / math.sqrt(steps), value_discretization_interval=interval\n",
           GAUSS, "test_path_checks.py"),
    Mutant("ledger", "a total leaves out smaller changes",
           "accounting/ledger.py",
           "            promises += [compose(alike, delta, change) for change in changes]\n",
           "            for size in changes:\n"
           "                same = [s for s in alike if s.guarantee.adjacency == size]\n"
           "                promises.append(compose(same, delta, size))\n", STAIRCASE,
           "test_path_checks.py"),
    Mutant("RACE", "merged releases of one promise count once",
           "race/sketch.py",
           "    if disjoint:\n",
           "    if disjoint or a.guarantee == b.guarantee:\n", SKETCH,
           "test_path_checks.py"),
    Mutant("collector", "slots are ordered by two bytes",
           "storage/shuffled_file.py",
           _SECRET_ORDER,
           "    return np.argsort(secret_stream().words(count, np.uint16), kind=\"stable\")\n", CAP,
           "test_path_checks.py"),
    Mutant("queries", "errors of private answers tell how far queries lie",
           "index/searchable.py",
           "            made = replace(made, doubt=doubt_of(made.values, made.spec))\n",
           "            if not isinstance(queries, Codes):\n"
           "                shown = float(abs(self._queries.vectors(queries)).mean())\n"
           "                made = replace(made, doubt=min(1.0, shown))\n", SYMBOLS,
           "test_path_checks.py"),
]  # fmt: skip
"""All of them. Methods that come later add theirs here."""

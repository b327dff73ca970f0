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
SKETCH = {"rows": 20, "width": 16, "epsilon": 1.0}


@dataclass(frozen=True)
class Mutant:
    """One weakness.

    Attributes
    ----------
    part : str
        The part of the package: sampler, chain, stream, index, build, queries, device, ledger,
        RACE, record.
    name : str
        What is wrong, in a few words.
    file, old, new : str
        The file under ``dpindex``, its source text, and what takes its place.
    spec : dict
        What is audited: fields of a Spec, or of a SketchSpec if they have ``rows``; ``codewords``
        is the size of a codebook.
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
    "                chunk, first_row=first_row, threads=self.threads, checked=True\n"
    "            )\n"
)
_ASKED = "        codes = Privatizer(self.query_spec, allow_unprotected=True).privatize(queries)\n"
_DRAWN = "        noise = self._law.source.sample(counts.size, self._stream())\n"
_TABLE = "    table = geometric_table(mpmath.mpf(epsilon), cells, inner, grid_bits - cells_bits)"
_KEYED = "        cipher = Cipher(algorithms.AES(os.urandom(32)), modes.CTR(os.urandom(16)))\n"
_BARE = "                bare = (exact.astype(np.int64) >> law.source.cell_bits).astype(np.int32)\n"
_UPSERT = "            codes = self._released(dataset.with_labels(checked_ids), terms, progress)\n"
_DEVICE = "    return Privatizer(spec, max_epsilon=max_epsilon).privatize(vector).to_bytes()\n"
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
    Mutant("sampler", "tails never extended", "mechanism/noise/tables.py",
           "        if self.tails:\n            self._extend_tails(draws, cells, stream)\n", "",
           STAIRCASE, "test_tables.py"),
    Mutant("sampler", "refined draws take the bucket's first cell", "mechanism/noise/tables.py",
           "        keys = (buckets.astype(np.uint64) << np.uint64(_KEY_BITS - _BUCKET_BITS)) "
           "| fresh\n",
           "        keys = buckets.astype(np.uint64) << np.uint64(_KEY_BITS - _BUCKET_BITS)\n",
           STAIRCASE, "test_tables.py"),
    Mutant("sampler", "dither lost", "mechanism/noise/tables.py",
           "        if self.cell_bits:\n            draws += offsets\n", "",
           STAIRCASE, "test_tables.py"),
    Mutant("sampler", "ratio of the staircase e^{1.05 ε}", "mechanism/noise/geometric.py",
           _TABLE, _TABLE.replace("mpf(epsilon)", "mpf(1.05 * epsilon)"), STAIRCASE,
           "test_geometric.py"),
    Mutant("sampler", "Gaussian sigma × 0.95", "mechanism/noise/gaussian.py",
           "    sigma *= math.sqrt(projection.sensitivity.l2_squared)\n",
           "    sigma *= 0.95 * math.sqrt(projection.sensitivity.l2_squared)\n",
           GAUSS, "test_gaussian_calibrations.py test_calibration.py"),
    Mutant("sampler", "two digits of a Laplace law, the low one a constant",
           "mechanism/noise/geometric.py",
           "        magnitude += self.low.sample(count, stream)\n",
           "        magnitude += self.low.sample(1, stream)[0]\n", LAPLACE,
           "test_two_digit.py test_oracle.py"),
    Mutant("sampler", "square wave clipped one cell early", "mechanism/noise/square_wave.py",
           "        cell = cell.clip(0, self.cells)\n",
           "        cell = cell.clip(0, self.cells - 1)\n", SQUARE,
           "test_square_wave.py test_oracle.py"),
    Mutant("sampler", "square wave drawn without its window's end",
           "mechanism/noise/square_wave.py",
           "        window = 2 * self.half_width + 1\n        drawn",
           "        window = 2 * self.half_width\n        drawn", SQUARE,
           "test_square_wave.py test_oracle.py"),
    Mutant("sampler", "biased uniform draws", "mechanism/noise/square_wave.py",
           "    while (again := np.flatnonzero((product & low) < unfair)).size:\n",
           "    while (again := np.flatnonzero((product & low) < 0 * unfair)).size:\n", SQUARE,
           "test_square_wave.py test_oracle.py"),
    Mutant("sampler", "flip thresholds × 0.9", "mechanism/noise/randomized_response.py",
           "        self._table = np.array([_COIN, *thresholds], dtype=np.uint64)\n",
           "        few = [t * 9 // 10 for t in thresholds]\n"
           "        self._table = np.array([_COIN, *few], dtype=np.uint64)\n", FLIPS,
           "test_randomized_response.py test_oracle.py"),
    Mutant("sampler", "flips one level too far", "mechanism/noise/randomized_response.py",
           "        np.ceil(level, out=level)\n", "        np.ceil(level + 1, out=level)\n",
           LEVELS, "test_randomized_response.py test_oracle.py"),
    Mutant("sampler", "levels ignore the weights of coordinates",
           "mechanism/noise/randomized_response.py",
           "        level /= (self.weights * _STEPS).astype(x.dtype)\n",
           "        level /= (0 * self.weights + _STEPS).astype(x.dtype)\n", SPARSE_SIGNS,
           "test_randomized_response.py test_oracle.py"),
    Mutant("sampler", "empty bins get no coin", "mechanism/noise/randomized_response.py", _FLIP,
           "        flips = draw_flips(self._table, level.astype(np.intp), stream)\n"
           "        return (x > 0) ^ (flips & (x != 0))\n", FLIPS,
           "test_randomized_response.py test_oracle.py"),
    Mutant("sampler", "one coin for two signs", "mechanism/noise/randomized_response.py", _FLIP,
           "        flips = draw_flips(self._table, level.astype(np.intp), stream)\n"
           "        flips[:, 1::2] = flips[:, : flips.shape[1] // 2 * 2 : 2]\n"
           "        return (x > 0) ^ flips\n", FLIPS,
           "test_randomized_response.py test_oracle.py"),
    Mutant("sampler", "iDP: the perturbed set is too small", "mechanism/noise/individual.py",
           "    near = np.abs(x) <= _STEPS\n", "    near = np.abs(x) <= _STEPS // 2\n", INSIDE,
           "test_individual.py test_oracle.py"),
    Mutant("sampler", "iDP: noise halved inside the set", "mechanism/noise/individual.py",
           "+ self.table.sample(inside.size, stream)\n",
           "+ self.table.sample(inside.size, stream) // 2\n", INSIDE_GAUSS,
           "test_individual.py test_oracle.py"),
    # The chain from a vector to a code
    Mutant("chain", "grid step too small", "mechanism/grid.py", "_SLACK = 1.0 - 2.0**-16\n",
           "_SLACK = 1.0 + 2.0**-10\n", STAIRCASE, "test_grid.py"),
    Mutant("chain", "values beyond the bounds let in", "mechanism/grid.py",
           "        if low <= smallest and largest <= high:\n            return None\n",
           "        if low <= smallest and largest <= 2 * high:\n            return None\n",
           STAIRCASE, "test_grid.py test_privatizer.py", audited=False),
    Mutant("chain", "one sign of the map doubled", "mechanism/projections/oporp.py",
           "            self._signs[repetition] = stream.signs(dim)\n",
           "            self._signs[repetition] = stream.signs(dim)\n"
           "            self._signs[repetition, 0] *= 2\n", STAIRCASE, "test_oporp.py"),
    Mutant("chain", "sparse rows use other bins", "mechanism/projections/oporp.py",
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
    Mutant("stream", "key from the clock", "randomness/secret.py", _KEYED,
           "        import time\n\n"
           "        seed = time.time_ns().to_bytes(32, 'little')\n"
           "        cipher = Cipher(algorithms.AES(seed), modes.CTR(seed[:16]))\n", STAIRCASE,
           "test_secret.py"),
    Mutant("stream", "key of two bytes", "randomness/secret.py", _KEYED,
           "        cipher = Cipher(algorithms.AES(os.urandom(2) * 16), "
           "modes.CTR(os.urandom(2) * 8))\n", STAIRCASE, "test_secret.py"),
    Mutant("stream", "one key for all threads", "randomness/secret.py", _KEYED,
           "        global _key\n"
           "        _key = globals().get('_key') or os.urandom(48)\n"
           "        cipher = Cipher(algorithms.AES(_key[:32]), modes.CTR(_key[32:]))\n", STAIRCASE,
           "test_secret.py"),
    Mutant("stream", "no new key after a fork", "randomness/secret.py", _KEYED,
           "        global _key\n"
           "        _key = globals().get('_key') or [os.urandom(48), 0]\n"
           "        _key[1] += 1\n"
           "        nonce = (int.from_bytes(_key[0][32:]) + (_key[1] << 64)) % (1 << 128)\n"
           "        cipher = Cipher(algorithms.AES(_key[0][:32]), "
           "modes.CTR(nonce.to_bytes(16)))\n", STAIRCASE, "test_secret.py"),
    Mutant("stream", "every block the same", "randomness/secret.py",
           "            encryptor.update_into(zeros, piece)\n",
           "            if start:\n"
           "                piece[:] = view[: len(piece)]\n"
           "            else:\n"
           "                encryptor.update_into(zeros, piece)\n", STAIRCASE,
           "test_secret.py test_path_checks.py"),
    Mutant("stream", "second half the inverse of the first", "randomness/secret.py", _FILLED,
           _FILLED.replace("        return", "        half = count // 2\n"
                           "        out[count - half :] = ~out[:half]\n        return"),
           STAIRCASE, "test_secret.py test_path_checks.py"),
    Mutant("stream", "one bit always zero", "randomness/secret.py", _FILLED,
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
           "            from dpindex.randomness.secret import SecretStream\n\n"
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
    Mutant("RACE", "epsilon is that of one row", "mechanism/noise/counts.py",
           "        drop = mpmath.mpf(epsilon) / changed\n",
           "        drop = mpmath.mpf(epsilon) * rows / changed\n", SKETCH, "test_counts.py"),
    Mutant("RACE", "two-sided noise from one table", "mechanism/noise/counts.py",
           "        draws -= np.maximum(other, ~other)\n", "", SKETCH, "test_counts.py"),
    Mutant("RACE", "a record counts twice in one row", "race/sketch.py",
           "        counts += fresh\n", "        fresh[0] *= 2\n        counts += fresh\n", SKETCH,
           "test_race_sketch.py"),
    # Whole records
    Mutant("record", "cap for 1.05 ε", "mechanism/noise/cap.py",
           "two_level_chance(epsilon, ", "two_level_chance(1.05 * epsilon, ", CAP, "test_cap.py"),
    Mutant("record", "cap drawn one level higher than counted", "mechanism/noise/cap.py",
           "        need = self.cap.threshold\n", "        need = self.cap.threshold + 1\n",
           CAP, "test_cap.py test_oracle.py"),
    Mutant("record", "cap drawn without ranks", "mechanism/noise/cap.py", _RANKS,
           "            order = np.tile(np.arange(rows.shape[1]), (len(rows), 1))\n", CAP,
           "test_cap.py test_oracle.py"),
    Mutant("record", "one coin for all records of a cap", "mechanism/noise/cap.py",
           "(stream.words(count, np.uint64) < self._coin)",
           "np.repeat(stream.words(1, np.uint64) < self._coin, count)", CAP,
           "test_cap.py test_oracle.py"),
    Mutant("record", "last sign of a cap code without noise", "mechanism/noise/cap.py", _PUT,
           _PUT + "            out[block, -1] = rows[:, -1] >= 0\n", CAP,
           "test_cap.py test_oracle.py"),
    Mutant("record", "codebook for 1.05 ε", "mechanism/noise/codebook_response.py",
           "two_level_chance(epsilon, ", "two_level_chance(1.05 * epsilon, ", SYMBOLS,
           "test_codebook_response.py"),
    Mutant("record", "the rest may hit the nearest codewords",
           "mechanism/noise/codebook_response.py",
           "            outside += outside >= near[:, i]\n", "            pass\n", SYMBOLS,
           "test_codebook_response.py test_oracle.py"),
    Mutant("record", "one of the nearest codewords never drawn",
           "mechanism/noise/codebook_response.py",
           "draw_uniform(self.subset, count, stream)]",
           "draw_uniform(self.subset - 1, count, stream)]", SYMBOLS,
           "test_codebook_response.py test_oracle.py"),
    Mutant("record", "symbols drawn from eight bits", "mechanism/noise/codebook_response.py",
           "    words = stream.words(count, np.uint64)\n",
           "    words = stream.words(count, np.uint64) >> np.uint64(56) << np.uint64(56)\n",
           SYMBOLS, "test_codebook_response.py test_oracle.py"),
    Mutant("record", "last record reported as it is", "mechanism/noise/codebook_response.py",
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
    Mutant("chain", "rows normalised before the grid", "mechanism/projector.py",
           "            return projection.apply(grid.round(block))\n",
           "            norms = np.sqrt((np.asarray(block, np.float64) ** 2).sum(1))[:, None]\n"
           "            return projection.apply(grid.round(block / np.maximum(norms, 1e-9)))\n",
           STAIRCASE, "test_path_checks.py"),
    Mutant("chain", "short vectors pass min_norm", "mechanism/projector.py",
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
           "            return Queries(exact, self.spec, private=False)\n"
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
]  # fmt: skip
"""All of them. Methods that come later add theirs here."""

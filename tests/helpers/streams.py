"""Streams that tests inject where the package reads secret bits."""

import itertools

import numpy as np


class Scripted:
    """Deals out prepared arrays of words, one for each request, and checks that they fit it."""

    def __init__(self, script):
        self._script = list(script)

    def words(self, count, dtype):
        answer = self._script.pop(0)
        assert answer.dtype == dtype, f"asked for {dtype}, script says {answer.dtype}"
        assert answer.shape == (count,), f"asked for {count}, script says {answer.shape}"
        return answer.copy()

    @property
    def spent(self):
        """True when every prepared answer was asked for."""
        return not self._script


class Seeded:
    """Reproducible uniform words, so that a statistical test passes always or never."""

    def __init__(self, seed):
        self._rng = np.random.default_rng(seed)

    def words(self, count, dtype):
        most = np.iinfo(dtype).max
        return self._rng.integers(0, most, count, dtype=dtype, endpoint=True)


def seed_noise(patch):
    """Draw noise from the seeds 0, 1, …"""
    seeds = itertools.count()
    patch.setattr("dpindex.base.threads.cores", lambda: 1)  # seeds are drawn in order
    for user in ("dpindex.mechanism.privatizer", "dpindex.race.sketch"):
        patch.setattr(f"{user}.secret_stream", lambda: Seeded(next(seeds)))

"""The channel from the coordinates of vectors to the codes of a spec, as a denoiser needs it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpindex.base.arrays import AnyArray, Doubles, Singles, row_blocks
from dpindex.base.errors import InputError, NoDenoiserError
from dpindex.base.threads import cores, map_from_both_ends
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.spec import Spec

_BLOCK_NUMBERS = 1 << 18
"""Decoded numbers of a block that one thread works on."""


class Channel:
    """The channel from coordinates to decoded codes: variance and likelihood of the noise.

    Decoded codes y are unbiased for the coordinate x. Units are those of the data. All of it is a
    function of public parameters.

    Attributes
    ----------
    format : CodeFormat
        Decodes stored codes.
    variance : three floats
        ``Var(y | x) = v₀ + v₁x + v₂x²``.
    likelihood : Likelihood
        Empty for sign codes, of which the variance alone is used.

    Raises
    ------
    InputError
        If the spec adds no noise, or keeps symbols.
    """

    def __init__(self, spec: Spec) -> None:
        if not spec.method_row.private:
            raise NoDenoiserError(f"{spec.method} adds no noise: there is nothing to denoise.")
        if not spec.format_type.denoisers:
            raise NoDenoiserError(
                f"{spec.method} keeps {spec.format.name}, which have no denoiser."
            )
        self.format = spec.format
        self.variance, self.likelihood = spec.law.decoded_noise(spec.step)

    def check(self, codes: Codes) -> None:
        """Accept codes of this format alone: never an array of numbers, so never a vector."""
        if not isinstance(codes, Codes):
            raise InputError("a denoiser takes dpindex codes, never vectors.")
        of_spec = codes.fingerprint == self.format.fingerprint
        if not of_spec or codes.k != self.format.code_length:
            raise InputError("these codes were made under another spec than the denoiser's.")

    def for_each_block(self, count: int, action: Callable[[slice], None]) -> None:
        """Run ``action`` on slices of ``count`` rows whose decoded codes fit the cache.

        All cores work.
        """
        size = max(64, _BLOCK_NUMBERS // self.format.code_length)
        map_from_both_ends(action, [*row_blocks(count, size)], cores())

    def noise(self, y: Singles) -> Singles:
        """Unbiased estimates of ``Var(y | x)``, element by element."""
        # E[v₀ + v₁y + v₂y² | x] = Var(y | x)·(1 + v₂).
        scale = 1.0 / (1.0 + self.variance[2])
        constant, first, second = (np.float32(v * scale) for v in self.variance)
        estimate: Singles = (second * y + first) * y + constant
        return estimate

    def noise_at(self, x: AnyArray) -> Doubles:
        """Return ``Var(y | x)``, element by element."""
        highest_first = self.variance[::-1]
        noise = np.polyval(highest_first, x)
        return np.asarray(noise, dtype=np.float64)

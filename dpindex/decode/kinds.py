"""The kinds of code, one line for each, and the decoder of a spec's codes."""

from __future__ import annotations

from dpindex.decode.base import Decoder, Metric
from dpindex.decode.denoised import DenoisedDecoder
from dpindex.decode.denoiser import Denoiser
from dpindex.decode.designed import DesignedDecoder
from dpindex.decode.numbers import NumberDecoder
from dpindex.decode.signs import SignDecoder
from dpindex.decode.symbols import SymbolDecoder
from dpindex.mechanism.spec import Spec

DECODERS: list[type[Decoder]] = [DesignedDecoder, SignDecoder, SymbolDecoder, NumberDecoder]
"""Every kind of code. The first that reads codes of a spec counts; the last one takes all codes as
numbers."""


def decoder_of(
    spec: Spec,
    metric: Metric = "cosine",
    denoiser: Denoiser | None = None,
    *,
    exact: bool = True,
) -> Decoder:
    """Return what is done with the codes of a spec.

    Parameters
    ----------
    spec : Spec
    metric : "cosine", "ip" or "l2"
        What is estimated and ranked by.
    denoiser : Denoiser, optional
        What codes go through before they are ranked.
    exact : bool
        Whether every item is compared when they are ranked: see :class:`DenoisedDecoder`.

    >>> from dpindex import attribute
    >>> decoder_of(Spec("dp-signoporp-rr", dim=8, k=8, epsilon=2.0,
    ...     adjacency=attribute(1.0))).ranked_as
    'signs'
    """
    plain = next(kind for kind in DECODERS if kind.reads(spec))(spec, metric)
    if denoiser is None:
        return plain
    return plain.with_denoiser(denoiser) or DenoisedDecoder(plain, denoiser, exact=exact)

r"""Similarities of codes to queries, and their errors.

*What is estimated.* x and y are projected vectors, ρ their cosine, x̃ a decoded code. Every
similarity comes twice.

1. **Unbiased**, of one pair by itself (:class:`~dpindex.decode.base.Decoder`). Number codes
   (:mod:`~dpindex.decode.numbers`): ⟨x̃, y⟩ is unbiased for ⟨x, y⟩, and norms are corrected by the
   moments of the noise. Sign codes (:mod:`~dpindex.decode.signs`): the expected agreement of two
   codes is an increasing function of ρ, which is inverted. Symbol codes
   (:mod:`~dpindex.decode.symbols`): the mean cosine of public pairs that look alike. Codes of a
   design (:mod:`~dpindex.decode.designed`): what estimates say of public vectors, by which signs
   are read, too (:mod:`~dpindex.decode.public_vectors`).
2. **Posterior**, for cosines alone (:class:`~dpindex.decode.base.Posterior`), where a prior was
   learned from the codes of a collection (:mod:`~dpindex.decode.posterior`).

A denoiser (:mod:`~dpindex.decode.denoiser`), learned from codes too, estimates the vectors behind
codes, which are then compared instead.

Everything is a function of codes, queries and public parameters: post-processing, which costs no
budget.

:data:`DECODERS` has a line for each kind of code, and :func:`decoder_of` gives what is done with
the codes of a spec. A release learns what they say of a collection as it publishes, whatever it
publishes to: :func:`learned`. In memory it is learned when it is first asked for: :class:`Learned`,
which says why what cannot be learned is not stated.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import cached_property

import numpy as np

from dpindex.base.arrays import Rows, spaced
from dpindex.decode.base import Decoder, Estimator, Metric
from dpindex.decode.calibration import SAMPLE_ROWS, SimilarityCalibration
from dpindex.decode.denoised import DenoisedDecoder
from dpindex.decode.denoiser import Denoiser
from dpindex.decode.designed import DesignedDecoder
from dpindex.decode.numbers import NumberDecoder
from dpindex.decode.signs import SignDecoder
from dpindex.decode.symbols import SymbolDecoder
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.public_random import PublicStream
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


LEAST_ROWS = 100
"""Fewer codes say too little about what is usual in a collection."""


def learned(
    decoder: Decoder,
    take: Callable[[Rows], Codes],
    rows: int,
) -> SimilarityCalibration | None:
    """Return what :meth:`Decoder.posterior` needs; None if nothing can be learned.

    It reads codes and public parameters, so it costs no budget.

    Parameters
    ----------
    decoder : Decoder
        Of the codes as they are ranked.
    take : callable
        Returns the codes of some rows, which ascend.
    rows : int
        Codes in the collection.
    """
    posterior = decoder.stated_by
    if posterior is None or posterior.lacks(decoder.spec) or rows < LEAST_ROWS:
        return None
    places = spaced(rows, SAMPLE_ROWS)
    order = PublicStream(0, "calibration").permutation(len(places))
    found = decoder.learned(take(places).take(order), rows)
    if found is None or not np.isfinite(found.density).all():
        return None
    return found


_LEARNING = threading.RLock()
"""Held by whoever learns: other searches of the collection wait, and do not learn it again. All
collections share it, so that a fork has one lock to let go of."""

if hasattr(os, "register_at_fork"):  # a child has no thread that could let go of it
    os.register_at_fork(
        before=_LEARNING.acquire,
        after_in_parent=_LEARNING.release,
        after_in_child=_LEARNING.release,
    )


class Learned:
    """The calibration of a collection's codes, which is learned when it is first read.

    Searches in several threads share it: the first that asks learns, and the others wait for it.

    Parameters
    ----------
    decoder : Decoder
        Of the codes as they are ranked.
    rows : int
        Codes in the collection.
    learn : callable
        Returns what :func:`learned` does; called once.
    changes : int
        Rows that had come into the collection or gone from it.
    """

    def __init__(
        self,
        decoder: Decoder,
        rows: int,
        learn: Callable[[], SimilarityCalibration | None],
        changes: int,
    ) -> None:
        self.rows = rows
        self.changes = changes
        self._decoder = decoder
        self._learn = learn

    @property
    def calibration(self) -> SimilarityCalibration | None:
        """What was learned, now if nobody asked before; None where nothing can be learned."""
        with _LEARNING:
            found = self._learn()
            self._learn = lambda: found  # lets go of the codes; Ctrl-C leaves all to the next
            return found

    @cached_property
    def posterior(self) -> Estimator | None:
        """The estimator of posterior cosines, which hits state; None if nothing is stated."""
        return self._decoder.posterior(self.calibration)

    @property
    def unstated(self) -> str:
        """Why :attr:`posterior` states nothing, and what helps; empty if it does."""
        if self.posterior is not None:
            return ""
        decoder = self._decoder
        posterior = decoder.stated_by
        metric = decoder.metric
        alone = "`unbiased` estimates each pair alone, and is too high for the best of many"
        if metric != "cosine":
            why = (
                f"what codes tell of a collection holds for cosines, and this index ranks by "
                f"{metric}"
            )
        elif posterior is None:
            why = "errors of codes under a design are not known"
        elif lacking := posterior.lacks(decoder.spec):
            return f"no similarity is stated: {lacking}."
        elif self.rows < LEAST_ROWS:
            why = f"{self.rows} codes are too few to learn what they mean, {LEAST_ROWS} are enough"
        elif isinstance(decoder, DenoisedDecoder):
            why = "errors of denoised signs are not known"
        else:
            why = "nothing was learned from these codes yet, `calibrate` does it"
        return (
            f"no similarity is stated: {why}. {alone}; rerank with the original vectors is exact."
        )

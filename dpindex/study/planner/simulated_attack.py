"""What attacks learn from the codes of a modelled collection: linked codes and rebuilt vectors."""

from __future__ import annotations

import numpy as np

from dpindex.base.arrays import Vectors, stacked
from dpindex.denoise import Denoiser
from dpindex.exposure.exposure import Exposure
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.spec import Spec
from dpindex.study.attacks.linkage import Linkage
from dpindex.study.attacks.rebuilding import (
    Rebuilder,
    attackers_denoiser,
    can_be_rebuilt,
    dense_units,
    not_codewords,
    public_rows,
)
from dpindex.study.planner.collection_model import CollectionModel

__all__ = ["linked_share", "rebuilt", "simulated_exposure"]

_LINKED_ROUNDS = 4


def simulated_exposure(
    spec: Spec, model: CollectionModel, rounds: int, predicted: Exposure
) -> Exposure:
    """Return what attacks find on a model of the collection.

    Parameters
    ----------
    spec : Spec
    model : CollectionModel
        Its queries are the attacked vectors, and its sampled vectors are public.
    rounds : int
        Codes of each sampled vector that the attacker's denoiser is fitted to, [1, ∞).
    predicted : Exposure
        What is returned of vectors that are too long to be rebuilt.
    """
    privatizer = Privatizer(spec)
    denoiser = attackers_denoiser(spec, privatizer.privatize(stacked([model.sampled] * rounds)))
    linked = linked_share(spec, model, denoiser)
    return rebuilt(spec, model.queries, model.sampled, denoiser, predicted).with_linked(linked)


def rebuilt(
    spec: Spec,
    attacked: Vectors,
    public: Vectors,
    denoiser: Denoiser | None,
    predicted: Exposure,
) -> Exposure:
    """Return the prediction with what an attacker with public vectors rebuilds in truth.

    Vectors that are too long, and codewords, are left as predicted.
    """
    if not can_be_rebuilt(spec):
        return predicted
    chosen = public[public_rows(public.shape[0], spec.dim, np.arange(0))]
    rebuild = Rebuilder(spec, chosen, denoiser)
    truth = not_codewords(spec, dense_units(spec, attacked))
    if not len(truth):
        return predicted
    codes = Privatizer(spec).privatize(truth)
    measured = rebuild.exposure(truth, codes)
    return Exposure(predicted.linked, **measured, simulated=True)


def linked_share(spec: Spec, model: CollectionModel, denoiser: Denoiser | None) -> float:
    """Return the share of queries whose own code fits best in the collection: :class:`Linkage`.

    With a denoiser, denoised codes are compared too, and the larger share is returned.

    A candidate stands for w vectors, and R codes of it were drawn, so the chance that none of these
    vectors beats the own code is estimated as ``(1 − w/R)^beats``, at least 0. That is unbiased for
    Poisson counts if w ≤ R; a power of the mean would be too large.
    """
    privatizer = Privatizer(spec)
    codes = privatizer.privatize(stacked([model.queries, model.sampled]))
    linkages = [Linkage(privatizer, model.queries, codes)]
    if denoiser is not None:
        linkages.append(Linkage(privatizer, model.queries, codes, denoiser))
    beats = np.zeros((len(linkages), *model.weight.shape))
    for _ in range(_LINKED_ROUNDS):
        drawn = [(privatizer.privatize(model.sampled), False)]
        if model.near.shape[0]:
            drawn.append((privatizer.privatize(model.near), True))
        for linkage, counted in zip(linkages, beats, strict=True):
            comparisons = [linkage.compare(codes, own) for codes, own in drawn]
            counted += np.hstack([above + tied / 2 for above, tied in comparisons])
    unbeaten = np.maximum(1.0 - model.weight / _LINKED_ROUNDS, 0.0)
    return float(np.prod(unbeaten**beats, axis=2).mean(axis=1).max())

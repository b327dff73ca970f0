"""What attacks learn from the codes of a modelled collection: linked codes and rebuilt vectors."""

from __future__ import annotations

import math

import numpy as np
import scipy.special

from dpindex.base.arrays import Doubles, Floats, Vectors, stacked
from dpindex.denoise import Denoiser
from dpindex.index.kinds import kind_of
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.spec import Spec
from dpindex.study.exposure import Exposure
from dpindex.study.linkage import Flags, Linkage
from dpindex.study.planner.collection_model import CollectionModel
from dpindex.study.reconstruction import (
    Reconstructor,
    attackers_denoiser,
    can_be_reconstructed,
    dense_units,
    not_codewords,
    public_rows,
)

__all__ = ["linked_share", "rebuilt", "simulated_exposure"]

# Codes of each candidate, at least and at most, and comparisons with them.
_ROUNDS = (2, 16)
_COMPARISONS = 1 << 30
# Codes that come close, by rank, from which the chance of a closer one is extrapolated.
_RANKS = (30, 3)
_LEAST_DISTANCE = 1e-9


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
    linked = linked_share(spec, model)
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
    if not can_be_reconstructed(spec):
        return predicted
    chosen = public[public_rows(public.shape[0], spec.dim, np.arange(0))]
    rebuild = Reconstructor(spec, chosen, denoiser)
    truth = not_codewords(spec, dense_units(spec, attacked))
    if not len(truth):
        return predicted
    codes = Privatizer(spec).privatize(truth)
    measured = rebuild.exposure(truth, codes)
    return Exposure(predicted.linked, **measured, simulated=True)


def linked_share(spec: Spec, model: CollectionModel) -> float:
    """Return the share of queries whose own code fits best in the collection: :class:`Linkage`.

    A candidate stands for w vectors, and R codes of it are drawn, so the chance that none of these
    vectors beats the own code is estimated as ``(1 − w/R)^beats``. That is unbiased for Poisson
    counts if w ≤ R; a power of the mean would be too large. Where sampled vectors stand for more,
    see :func:`_chance_to_beat`.
    """
    privatizer = Privatizer(spec)
    queries = model.queries.shape[0]
    sampled_weight, near_weight = np.split(model.weight, [model.sampled.shape[0]], axis=1)
    drawn = (model.sampled.shape[0] + model.near.shape[0]) * spec.code_length
    largest = sampled_weight.max()
    rounds = int(np.clip(min(math.ceil(largest), _COMPARISONS // (drawn * queries)), *_ROUNDS))
    crowd = model.sampled[: kind_of(spec).likelihoods.crowd_size]
    codes = privatizer.privatize(stacked([model.queries, model.sampled]))
    linkage = Linkage(privatizer, model.queries, codes, crowd)
    leads = []
    near_beats = np.zeros(near_weight.shape)
    for _ in range(rounds):
        leads.append(linkage.lead(privatizer.privatize(model.sampled)))
        if model.near.shape[0]:
            lead = linkage.lead(privatizer.privatize(model.near), own=True)
            near_beats += _beats(lead)
    unbeaten = np.prod(np.maximum(1.0 - near_weight / rounds, 0.0) ** near_beats, axis=1)
    if largest <= rounds:
        beats = np.sum([_beats(lead) for lead in leads], axis=0)
        return float((unbeaten * np.prod((1.0 - sampled_weight / rounds) ** beats, axis=1)).mean())
    is_counted = np.tile(sampled_weight > 0, rounds)
    chance = _chance_to_beat(np.where(is_counted, np.hstack(leads), -np.inf), is_counted)
    return float((unbeaten * np.exp(-chance * sampled_weight.sum(axis=1))).mean())


def _beats(lead: Floats) -> Floats:
    """Return 1 where a code fits better than the own one, and 1/2 for a tie."""
    return (np.sign(lead) + 1) / 2


def _chance_to_beat(lead: Floats, is_counted: Flags) -> Doubles:
    """Return the chance that a code beats the own one, from how close the drawn codes came.

    Leads are taken as normal from two of their quantiles on, since the collection has more codes
    than were drawn.
    """
    drawn = is_counted.sum(axis=1)
    falling = -np.sort(-lead, axis=1)
    far, near = (falling[:, rank] for rank in _RANKS)
    far_quantile, near_quantile = (scipy.special.ndtri((rank + 0.5) / drawn) for rank in _RANKS)
    slope = (far_quantile - near_quantile) / np.maximum(near - far, _LEAST_DISTANCE)
    return np.asarray(scipy.special.ndtr(near_quantile + slope * near))

"""What the codes of a collection show of the cosines of their vectors.

Unlike the estimates of :mod:`dpindex.similarity.similarity`, observations are not clipped, their
law is known given the *true* cosine, and norms that nobody declared are shrunk towards those of the
collection.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from dpindex.base.arrays import AnyArray, Doubles, Singles
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.spec import Spec
from dpindex.similarity.observation_law import ObservationLaw
from dpindex.similarity.similarity import Queries


class Observer(ABC):
    """Observations of the codes of one collection.

    Parameters
    ----------
    spec : Spec
    codes : Codes
        A sample of the collection.
    """

    pairs_of = 512
    """Codes that are compared with each other to learn the distribution of cosines."""

    shows_queries = True
    """True if the prior of an exact query is fitted to all its observations of the sample."""

    knows_denoised = True
    """True if cosines can be read off denoised codes of this kind."""

    def __init__(self, spec: Spec, codes: Codes) -> None:
        self.spec = spec

    @classmethod
    def can_observe(cls, spec: Spec) -> bool:
        """Return True if what the spec says is enough to know the law of observations."""
        return True

    @abstractmethod
    def law(self, spec: Spec, private: bool) -> ObservationLaw:
        """The law for exact queries, or for private ones under that spec."""

    @abstractmethod
    def of(self, x: AnyArray, queries: Queries) -> tuple[Doubles, Doubles]:
        """Observations and their scales, shape (nq, count), of decoded codes.

        x has shape (nq or 1, count, k).
        """

    def hidden_error(self, cosine: Doubles, private: bool) -> Doubles:
        """Deviation of what the law leaves out, as observations do not show it."""
        return np.zeros_like(cosine)

    def refined_law(self, spec: Spec, private: bool) -> ObservationLaw:
        """The law of inner products of :meth:`refined_items` and :meth:`refined_queries`."""
        return self.law(spec, private)

    def refined_items(self, x: AnyArray) -> Singles | None:
        """Decoded codes, shape (n, k), as they tell most of a distribution of cosines.

        None where observations have scales, and :meth:`of` is all there is.
        """
        return None

    def own_items(self, codes: Codes) -> Singles | None:
        """Decoded codes whose moments along an exact query say what its own distribution is.

        Their inner products with :meth:`refined_queries` follow :meth:`law`. None where they say
        less, or where near neighbours share the error of their projection.
        """
        return None

    def refined_queries(self, queries: Queries) -> Singles:
        """The other side, shape (nq, k)."""
        raise NotImplementedError

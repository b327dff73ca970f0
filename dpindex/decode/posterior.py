"""Posterior cosines by a table, for codes whose inner products observe them.

Nothing is learned when cosines are estimated.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import lru_cache

import numpy as np

from dpindex.base.arrays import Doubles
from dpindex.decode.base import Estimate, Posterior, PrivateQueries, Queries
from dpindex.decode.calibration import (
    PAIRED_ROWS,
    Decoded,
    ObservationLaw,
    Observations,
    SimilarityCalibration,
    calibrated,
    posterior_cosines,
)
from dpindex.decode.common import joined
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.spec import Spec


class TablePosterior(Posterior):
    """Cosines by table: see :mod:`dpindex.decode.calibration`."""

    def __init__(self, spec: Spec, calibration: SimilarityCalibration) -> None:
        super().__init__(spec, calibration)
        self._law = lru_cache(maxsize=4)(self.law)

    @abstractmethod
    def law(self, query_spec: Spec | None) -> ObservationLaw:
        """The law for private queries under a spec, or for exact ones (None)."""

    @abstractmethod
    def decode(self, codes: Codes) -> Decoded:
        """The codes, as one side of a comparison."""

    @abstractmethod
    def decode_queries(self, queries: Queries) -> Decoded:
        """The other side."""

    @property
    @abstractmethod
    def hedge(self) -> float:
        """The share of the distance to unbiased estimates that counts as error."""

    def hidden_error(self, cosine: Doubles, queries: Queries) -> Doubles:
        """Deviation that the law leaves out and hits share, as pairs of codes do not show it.

        Infinite for a query of which nothing should be stated, whatever its cosines.
        """
        return np.zeros_like(cosine)

    def estimates(self, codes: Codes, queries: Queries, groups: int) -> Estimate:
        query_spec = queries.spec if isinstance(queries, PrivateQueries) else None
        x = self.decode(codes)
        y = self.decode_queries(queries)
        k = x.vectors.shape[1]
        vectors = x.vectors.reshape(groups, -1, k)
        columns = y.vectors[:, :, None]
        products = np.matmul(vectors, columns)[..., 0]
        z = products.astype(np.float64)
        one = Decoded(vectors, *(part.reshape(groups, -1) for part in x[1:]))
        other = Decoded(columns, *(part[:, None] for part in y[1:]))
        seen = Observations.of(z, one, other, k)
        rest, error = posterior_cosines(seen, self._law(query_spec), self.calibration, self.hedge)
        factor = self.spec.projection.inner_product_factor
        cosine, error = joined(rest, error, (one, other), factor)
        return cosine, np.hypot(error, self.hidden_error(cosine, queries))

    def with_prior(self, codes: Codes) -> SimilarityCalibration:
        """Return the calibration with the prior that pairs of codes show."""
        codes = codes.take(slice(PAIRED_ROWS))
        as_queries = PrivateQueries(codes, self.spec)
        sides = (self.decode(codes), self.decode_queries(as_queries))
        return calibrated(sides, self.law(self.spec), self.calibration)

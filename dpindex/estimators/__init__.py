"""From codes to cosines, inner products and distances, with standard errors."""

from dpindex.estimators.float_codes import NoisyVectorStats, cosine, inner_product, squared_distance
from dpindex.estimators.sign_codes import agreement_curve, cosine_from_agreement, cosine_from_score

__all__ = [
    "NoisyVectorStats",
    "agreement_curve",
    "cosine",
    "cosine_from_agreement",
    "cosine_from_score",
    "inner_product",
    "squared_distance",
]

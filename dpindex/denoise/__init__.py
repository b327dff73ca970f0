"""Denoising, learned from private codes alone: post-processing, so it costs no budget."""

from dpindex.denoise.denoiser import Denoiser, denoiser_from_bytes, denoiser_to_bytes
from dpindex.denoise.fit import DenoiserKind, fit_denoiser, fit_if_possible

__all__ = [
    "Denoiser", "DenoiserKind", "denoiser_from_bytes", "denoiser_to_bytes", "fit_denoiser",
    "fit_if_possible",
]  # fmt: skip

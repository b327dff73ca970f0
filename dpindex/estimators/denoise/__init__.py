"""Denoising, learned from private codes alone: post-processing, so it costs no budget."""

from dpindex.estimators.denoise.denoiser import Denoiser, Kind, fit_denoiser
from dpindex.estimators.denoise.packing import denoiser_from_bytes, denoiser_to_bytes

__all__ = ["Denoiser", "Kind", "denoiser_from_bytes", "denoiser_to_bytes", "fit_denoiser"]

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
"""

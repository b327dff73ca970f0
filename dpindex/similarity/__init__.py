r"""Similarities of codes to queries, and their errors.

*What is estimated.* x and y are projected vectors, ρ their cosine, x̃ a decoded code. Every
similarity comes twice.

1. **Unbiased**, of one pair by itself (:class:`~dpindex.similarity.similarity.Similarity`). Number
   codes (:mod:`~dpindex.similarity.number_codes`): ⟨x̃, y⟩ is unbiased for ⟨x, y⟩, and norms are
   corrected by the moments of the noise. Sign codes (:mod:`~dpindex.similarity.sign_codes`): the
   expected agreement of two codes is an increasing function of ρ, which is inverted. Symbol codes
   (:mod:`~dpindex.similarity.symbol_codes`): the mean cosine of public pairs that look alike.
2. **Posterior**, for cosines alone (:mod:`~dpindex.similarity.posterior`), where a prior was
   learned from the codes of a collection (:mod:`~dpindex.similarity.calibration`).

Everything is a function of codes, queries and public parameters: post-processing, which costs no
budget.
"""

r"""Similarities of codes to queries: estimates, posteriors, and their errors.

*What is estimated.* x and y are projected vectors, ρ their cosine, x̃ a decoded code. Every
similarity comes twice.

1. **Unbiased**, of one pair by itself (:mod:`~dpindex.similarity.similarity`). Number codes
   (:mod:`~dpindex.similarity.float_codes`): ⟨x̃, y⟩ is unbiased for ⟨x, y⟩, and norms are corrected
   by the moments of the noise. Sign codes (:mod:`~dpindex.similarity.sign_codes`): the expected
   agreement of two codes is an increasing function of ρ, which is inverted. Symbol codes
   (:mod:`~dpindex.similarity.symbol_codes`): the mean cosine of public pairs that look alike.
2. **Posterior**, for cosines alone (:mod:`~dpindex.similarity.learned`). The best of many
   candidates are those with the luckiest noise, so an unbiased estimate of a *selected* similarity
   is too high. A posterior mean is right on average, whatever was selected (Efron 2011, "Tweedie's
   formula and selection bias").

*How the pieces of the posterior fit.* Let z be an observation of ρ that is read off a pair, with a
scale s that is known for each pair.

* An :class:`~dpindex.similarity.observation.Observer` reads (z, s) off codes and queries, and says
  what law z has given ρ: one class for each kind of code.
* An :class:`~dpindex.similarity.observation_law.ObservationLaw` is ``p(z | ρ, s)`` on a grid of 128
  values of ρ: mean ``m(ρ)`` and variance ``s·own(ρ) + common(ρ)``, in a log-concave shape. The
  agreement of two sign codes is binomial
  (:class:`~dpindex.similarity.observation_law.AgreementLaw`).
* A prior ``π(ρ) ∝ exp Σ_b θ_b B_b(ρ)``, with cubic B-splines B_b
  (:class:`~dpindex.similarity.prior.Priors`), is fitted to the observations of all pairs of a
  sample: their histogram n has the expectation ``Σ_ρ π(ρ) p(bin | ρ)``, and θ maximises ::

      Σ_bin n_bin log Σ_ρ π(ρ) p(bin | ρ)  −  (θ − θ₀)ᵀ P (θ − θ₀) / 2

  (Eilers 2007, penalised composite link model; Efron 2016, "Empirical Bayes deconvolution
  estimates"). P penalises third differences, which a normal density does not have, and weakly any
  departure from the default θ₀. Where the noise hides the shape the prior is therefore normal, and
  where it hides the width too it is the default. An exact query gets a prior of its own, fitted
  likewise to what it shows of the sample, or tilted by a factor ``exp(a·z + b·z²)`` until it
  explains the mean and mean square of its observations.
* :func:`~dpindex.similarity.posterior.posterior` gives the mean and deviation of
  ``π(ρ) p(z | ρ, s)``, normalised over the grid, and
  :func:`~dpindex.similarity.posterior.in_ranking_order` pools neighbours whose order the codes do
  not bear out.

Symbol codes have no prior of their own. Their error grows where the codebook covers the collection
or private queries badly (:mod:`~dpindex.similarity.covered_symbols`).

Where a denoiser ranks, the denoised code is itself a posterior mean, and its cosines are read off
directly (:mod:`~dpindex.similarity.denoised`).

Everything is a function of codes, queries and public parameters: post-processing, which costs no
budget.
"""

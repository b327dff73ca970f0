"""Secret laws: exact integer samplers with their moments, likelihoods and calibrations."""

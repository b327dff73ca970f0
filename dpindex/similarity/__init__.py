"""From codes to cosines, inner products and distances, with standard errors."""

"""How a vector becomes a private code: spec, projections, noise, code formats."""

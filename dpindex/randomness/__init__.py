"""Two sources of randomness that never meet: public (projections) and secret (noise).

The secret stream is imported from :mod:`dpindex.randomness.secret` by the few who draw noise.
"""

from dpindex.randomness.public import BitSource, PublicStream

__all__ = ["BitSource", "PublicStream"]

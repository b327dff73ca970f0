"""Two sources of randomness that never meet: secret (noise) and public (projections)."""

from dpindex.randomness.public import PublicStream
from dpindex.randomness.secret import BitSource, SecretStream, secret_stream

__all__ = ["BitSource", "PublicStream", "SecretStream", "secret_stream"]

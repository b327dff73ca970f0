"""The searchable index: codes and their ids, what searches them, and the directory they lie in.

Vectors are privatized into an index by :mod:`dpindex.index.ingest`, which is imported apart from
the rest: who only searches never imports the secret stream.
"""

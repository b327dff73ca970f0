"""Services for others: a collector of codes over HTTP, and searches in published indexes.

Devices submit codes to a collector, and others search what has been collected.
:mod:`dpindex.serve.collector` accepts codes and is free of HTTP; :mod:`dpindex.serve.app` answers
requests with it, and :mod:`dpindex.serve.process` runs that in a process of its own.
"""

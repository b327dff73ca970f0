"""A collector: devices submit codes over HTTP, and others search what has been collected.

:mod:`dpindex.server.collector` accepts codes and is free of HTTP; :mod:`dpindex.server.app` answers
requests with it, and :mod:`dpindex.server.process` runs that in a process of its own.
"""

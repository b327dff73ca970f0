"""The client of a collector: it sends codes and private queries over HTTP."""

from dpindex.serve.client import Client

__all__ = ["Client"]

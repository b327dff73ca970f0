"""The ledger of releases, which stays with the data holder."""

from dpindex.ledger.book import Entry, Ledger, Total

__all__ = ["Entry", "Ledger", "Total"]

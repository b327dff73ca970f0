"""Accounting: totals of epsilon and delta, and the ledger of releases."""

"""What has been spent: totals of epsilon and delta, and the ledger of releases."""

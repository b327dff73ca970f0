"""Codes, ids and payload as they are kept: in memory, in files, in vector databases."""

"""Chances that a code stands out: exposure to attacks, visibility to a search."""

"""Attacks on codes: vectors rebuilt, known vectors linked, and what else a code gives away."""

"""Second implementations, which share no line with the package."""

"""Before and after a release: what it is predicted to retrieve, and what it does."""

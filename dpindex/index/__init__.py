"""The searchable index: what ranks codes, filters them, and turns ranks into hits."""

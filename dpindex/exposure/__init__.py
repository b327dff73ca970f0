"""How often a code stands out, and what it reveals: exposure to attacks, visibility to a search."""

"""What codes give away: exposure to an attacker, and visibility to a search."""

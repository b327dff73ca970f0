"""Methods that papers name, for comparison: others in the table find more or promise more."""

"""Numbers over steps."""

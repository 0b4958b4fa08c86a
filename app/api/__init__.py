"""The HTTP door: the only package that knows FastAPI."""

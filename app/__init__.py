"""Trainshed: the domain, and the HTTP door."""

__version__ = "0.1.0"

"""Data sets: the built-in ones and the uploads of a project."""

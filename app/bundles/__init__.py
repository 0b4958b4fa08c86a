"""Bundles of code that a project has uploaded."""

"""Measurements beside the peers, in one run: only ratios count."""

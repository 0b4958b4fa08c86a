"""Checkpoints of jobs: what is stored, which count, which may go."""

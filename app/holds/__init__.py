"""Devices leased to a person instead of a job, for a notebook or a debugger."""

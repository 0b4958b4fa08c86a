"""Environments of packages that jobs ask for: each installed once, kept by what it was made of, collected when unused.

Nothing is imported here: a trainer loads `workers.environments.activation` with the standard library alone. The worker
takes `Environments` from `workers.environments.environments`.
"""

"""The frameworks behind one protocol. Importing this package imports none of them; `base.load_backend` does."""

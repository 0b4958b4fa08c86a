"""A job from submit to its final state: states, causes, attempts, the journal."""

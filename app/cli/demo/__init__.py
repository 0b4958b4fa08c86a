"""`trainshed demo`: a service of its own in a temporary home, real jobs on both frameworks, and a bar for each."""

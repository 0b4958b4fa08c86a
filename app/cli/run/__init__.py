"""`trainshed run`: a folder of code packed, submitted as a script job, followed, and its files brought back."""

"""What is kept and what goes: deleting jobs, ends of retention, and files that nobody names any more."""

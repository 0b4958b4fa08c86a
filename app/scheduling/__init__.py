"""Which job starts where: a pure plan, and one transaction around it."""

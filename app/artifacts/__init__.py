"""Files that a job leaves behind."""

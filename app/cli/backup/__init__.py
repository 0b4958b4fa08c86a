"""Backup and restore: all rows, and all files that they name, in one tar file that either database can be made from."""

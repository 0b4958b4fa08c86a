"""The host side: the Celery worker, the launcher, the trainer and the two backends."""

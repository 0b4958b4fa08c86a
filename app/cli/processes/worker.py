"""`trainshed worker`."""

import sys

from app.cli.processes.root import run
from workers.celery_app import main

if __name__ == "__main__":
    sys.exit(run(main))

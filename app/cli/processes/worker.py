"""`trainshed worker`."""

import sys

from app.cli.processes.root import run
from workers.celery_app import main
from workers.startup import harden

if __name__ == "__main__":
    harden()
    sys.exit(run(main))

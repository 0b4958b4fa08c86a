"""`trainshed control`."""

import sys

from app.cli.processes.root import run
from app.control import main

if __name__ == "__main__":
    sys.exit(run(main))

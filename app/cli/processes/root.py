"""What every process of the server does first: read the settings, set up its log, and say why if it cannot start."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from app import logs, metering
from app.errors import TrainshedError
from app.settings import Settings, load_settings

CANNOT_START: Final = 2


def run(main: Callable[[Settings], None], arguments: Sequence[str] | None = None) -> int:
    """Call `main` with the settings of the environment; the exit code.

    Such a process takes no arguments but `--help`; a misspelt one must not start a server, or migrate.
    """
    parser = argparse.ArgumentParser(
        prog=f"trainshed {Path(sys.argv[0]).stem}",
        description=main.__doc__,
        epilog="It takes no arguments: all settings come from the environment, for example TRAINSHED_DATABASE_URL.",
    )
    try:
        parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    except SystemExit as error:
        return CANNOT_START if error.code else 0
    try:
        settings = load_settings()
        logs.configure(settings.log_level, settings.log_format)
        metering.describe_build(settings.revision)
        main(settings)
    except TrainshedError as error:
        print(f"error: {error}", file=sys.stderr)
        return CANNOT_START
    except KeyboardInterrupt:
        return 130
    return 0

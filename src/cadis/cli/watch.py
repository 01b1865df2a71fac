"""``cadis watch``: serve the report of a run or study while it goes on."""

import webbrowser
from pathlib import Path

from rich.console import Console

from cadis.report.page.watching import Watched, serving, wait_for_end
from cadis.report.terminal import tell


def watch(path: Path, port: int, open_browser: bool) -> int:
    """Serve until the run has ended, or Ctrl-C."""
    console, watched = Console(), Watched(path)
    with serving(watched, port) as address:
        idle = "" if watched.is_running() else " Nobody is working on it at present."
        tell(console, f"{path} is shown at {address} until it ends, or Ctrl-C.{idle}")
        if open_browser:
            webbrowser.open(address)
        try:
            wait_for_end(watched)
        except KeyboardInterrupt:
            tell(console, "Stopped watching; what is watched goes on.")
            return 0
    tell(console, f"It has ended; look at it again by: cadis report {path}")
    return 0

"""A console that shows names from outside as they are, and never executes them."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from cadis._io import escape_controls


class SafeConsole(Console):
    """A console that writes control characters in texts as visible escapes.

    Names of files, clients and classes may contain codes for the terminal. The codes that rich
    itself creates, for colors and bars, are not changed. Emoji codes such as ``:x:`` stay text.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"emoji": False, **options})

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render an object, and escape control characters except line breaks and tabs."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(escape_controls(segment.text, keep="\n\t"), segment.style)

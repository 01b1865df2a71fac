"""Our methods and samplers by what they are about, for whoever looks for one."""

import inspect
from dataclasses import dataclass, fields
from typing import Any

from cadis.algorithm.about import About
from cadis.algorithm.registry import KINDS, Kind

KINDS_OF_METHODS = (
    "reference",
    "clustered aggregation",
    "drift correction",
    "server optimiser",
    "weights on the server",
    "local loss under label skew",
    "one model per cluster",
    "who takes part",
    "time",
)
"""What methods and samplers are about, in the order in which they are listed."""


@dataclass(frozen=True)
class Entry:
    """A method or a sampler: its class, its kind, and facts about it."""

    part: type[Any]
    kind: Kind
    about: About

    @property
    def name(self) -> str:
        """As users type it."""
        name: str = self.part.name
        return name

    @property
    def text(self) -> str:
        """Its docstring without the list of its parameters, a line for each paragraph."""
        text = inspect.cleandoc(self.part.__doc__ or "").partition("\n\nAttributes:")[0]
        return "\n\n".join(part.replace("\n", " ") for part in text.split("\n\n"))

    @property
    def line(self) -> str:
        """What it does, in one line."""
        return self.text.partition("\n")[0]

    @property
    def parameters(self) -> str:
        """Its parameters with their defaults, as ``mu 0.01, tau 0.5``."""
        return ", ".join(f"{field.name} {_shown(field.default)}" for field in fields(self.part))


def catalogue() -> dict[str, list[Entry]]:
    """All methods and samplers of ours, by what they are about."""
    entries = [
        Entry(part, kind, part.about)
        for kind in (KINDS["method"], KINDS["sampler"])
        for part in kind.registry.values()
    ]
    return {
        about: [entry for entry in entries if entry.about.kind == about]
        for about in KINDS_OF_METHODS
    }


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).lower()

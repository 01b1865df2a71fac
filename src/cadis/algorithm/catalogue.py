"""Built-in parts by topic, and users' parts, for ``cadis methods`` and the documentation."""

import inspect
import re
from dataclasses import dataclass, fields
from typing import Any

from cadis._io import load_user_code
from cadis.algorithm.about import About
from cadis.algorithm.parts import find_part_class, get_class_name
from cadis.algorithm.registry import KINDS, Kind, is_of_kind

TOPICS = (
    "reference",
    "clustered aggregation",
    "drift correction",
    "server optimizer",
    "aggregation weights",
    "local loss under label skew",
    "one model per cluster",
    "client selection",
    "time",
    "server step",
    "update transform",
)
"""Topics of the built-in parts, in the order in which they are listed."""

_KINDS = ("method", "sampler", "server_optimizer", "transforms")


@dataclass(frozen=True)
class Entry:
    """A part in the catalogue, with its kind and facts about it."""

    part: type[Any]
    kind: Kind
    about: About

    @property
    def name(self) -> str:
        """Name of the part in options; ``file.py:Class`` for a user's class."""
        return get_class_name(self.part)

    @property
    def option(self) -> str:
        """Option that selects the part, such as ``--sampler hics``."""
        return f"--{self.kind.key.replace('_', '-')} {self.name}"

    @property
    def description(self) -> str:
        """Docstring without "Attributes" and "Example"; each paragraph is one line."""
        docstring = inspect.cleandoc(self.part.__doc__ or "")
        text = re.split(r"\n\n(?:Attributes|Example):", docstring)[0]
        return "\n\n".join(part.replace("\n", " ") for part in text.split("\n\n"))

    @property
    def summary(self) -> str:
        """First line of the docstring."""
        return self.description.partition("\n")[0]

    @property
    def parameters(self) -> str:
        """Parameters with their default values, such as ``mu 0.01, tau 0.5``."""
        return ", ".join(
            f"{field.name} {_format_default(field.default)}" for field in fields(self.part)
        )


def build_catalogue() -> dict[str, list[Entry]]:
    """Return all built-in methods, samplers, server optimizers and transforms by topic.

    Example:
        >>> from cadis.algorithm import build_catalogue
        >>> entry = build_catalogue()["reference"][0]
        >>> entry.name, entry.about.paper.citation
        ('fedavg', 'McMahan et al., AISTATS 2017')
    """
    entries = [
        Entry(part, KINDS[key], part.about)
        for key in _KINDS
        for part in KINDS[key].registry.values()
    ]
    return {topic: [entry for entry in entries if entry.about.topic == topic] for topic in TOPICS}


def make_user_entry(name: str) -> Entry:
    """Return the entry of the user's class ``file.py:Class``; its members determine its kind."""
    part = load_user_code(name)
    kinds = [kind for kind in KINDS.values() if isinstance(part, type) and is_of_kind(kind, part)]
    # A local optimizer also has all members of a server optimizer, which are fewer.
    kind = max(kinds, key=lambda kind: len(kind.members), default=KINDS["method"])
    return Entry(find_part_class(kind, name), kind, getattr(part, "about", About()))


def _format_default(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).lower()

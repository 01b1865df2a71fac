"""Definitions of attacks, trials and their outcomes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Literal, TypeAlias

Verdict: TypeAlias = Literal[
    "same",  # identical to an undisturbed run, except for times
    "reported",  # an error message, exit code 1 or 2, and nothing is lost
    "accepted",  # the input is valid
    "lost",  # something that was saved, or a file of the user, is lost
    "silent change",  # other numbers without an error message
    "dead end",  # the run can neither be resumed nor started again
    "left over",  # drafts that are never deleted
    "orphans",  # worker processes that outlive their server
    "wrong code",  # an undocumented exit code, or no error message
    "code",  # code of a stranger ran
    "traceback",
    "hang",
    "signal",
    "harness",  # an error in the trial itself
]
NOTE = "what"
"""File in a trial's folder with its description, in case the process of the trial dies."""

GOOD: tuple[Verdict, ...] = ("same", "reported", "accepted")


@dataclass(frozen=True)
class Finding:
    verdict: Verdict
    reason: str = ""
    others: Mapping[Verdict, int] = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        return self.verdict in GOOD


@dataclass(frozen=True)
class Trial:
    """One trial of an attack; it depends only on the seed, the attack and the number."""

    attack: str
    number: int
    seed: int
    folder: Path
    base: Path

    @property
    def random(self) -> Random:
        """Return a new generator, with the same numbers at every call."""
        return Random(f"{self.seed} {self.attack} {self.number}")


@dataclass(frozen=True)
class Outcome:
    number: int
    what: str
    finding: Finding
    seconds: float


@dataclass(frozen=True)
class Attack:
    name: str
    title: str
    trials: int
    quick: tuple[int, ...]
    prepare: Callable[[Path], None]
    attempt: Callable[[Trial], tuple[str, Finding]]
    find_obstacle: Callable[[], str | None] = lambda: None
    mounts: bool = False
    patience: float = 300


Case: TypeAlias = tuple[str, Callable[[], object]]
"""Description of an input, and a function that runs the target with it."""


class SilentChangeError(Exception):
    """A value changed without an error message."""


class LostError(Exception):
    """A file of the user is lost."""

"""What may come of a trial, and what an attack is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Literal, TypeAlias

Verdict: TypeAlias = Literal[
    "same",  # bit for bit what an undisturbed run leaves, but for its seconds
    "told",  # a sentence and exit code 1 or 2, and nothing lost
    "value",  # input was taken for what it is
    "lost",  # something that was saved or the user's is gone
    "silent change",  # other numbers, and not a word about it
    "dead end",  # neither resuming nor beginning anew is possible
    "left over",  # drafts that nobody will ever clear away
    "orphans",  # worker processes outlived the one that they work for
    "wrong code",  # a sentence, but another exit code than was promised
    "traceback",
    "hang",
    "signal",
    "harness",  # the trial itself is broken
]
NOTE = "what"
"""File in a trial's folder that says what is done, for trials that may not live to say it."""

GOOD: tuple[Verdict, ...] = ("same", "told", "value")


@dataclass(frozen=True)
class Finding:
    verdict: Verdict
    why: str = ""
    others: Mapping[Verdict, int] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        return self.verdict in GOOD


@dataclass(frozen=True)
class Trial:
    """One attempt, which depends on nothing but the seed, the attack and the number."""

    attack: str
    number: int
    seed: int
    folder: Path
    base: Path

    @property
    def random(self) -> Random:
        """Anew at every call: the same numbers for the same trial."""
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
    obstacle: Callable[[], str | None] = lambda: None
    mounts: bool = False
    patience: float = 300


Case: TypeAlias = tuple[str, Callable[[], object]]
"""An input in words, and giving it to whoever takes it."""


class SilentChangeError(Exception):
    """Something was taken for something else."""


class LostError(Exception):
    """Something of the user's is gone."""

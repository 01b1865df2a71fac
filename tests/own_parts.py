"""A file of parts as a user would write it; tests put it into a folder of their own."""

from pathlib import Path

TEXT = '''
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt

from cadis.algorithm import BaseMethod
from cadis.algorithm.samplers import Uniform


@dataclass(frozen=True)
class Mine(BaseMethod):
    """Averaging with a parameter.

    Attributes:
        parameter: how much of it there is, in
            all.
        momentum: of what comes after.
    """

    name: ClassVar[str] = "mine"
    parameter: Annotated[int, Ge(0)] = 1
    momentum: Annotated[float, Ge(0)] = 0.5
    lr: float = 2.0
    levels: tuple[int, ...] = (1, 2)
    quick: bool = True


@dataclass(frozen=True)
class Everybody(Uniform):
    """All.

    Attributes:
        eagerness: of the clients.
    """

    name: ClassVar[str] = "everybody"
    eagerness: float = 1.0


@dataclass(frozen=True)
class Halve:
    """Half of an update.

    Attributes:
        half: which part is left.
    """

    name: ClassVar[str] = "halve"
    side: ClassVar[Literal["client", "server"]] = "client"
    needs_bound: ClassVar[bool] = False
    half: Annotated[float, Gt(0)] = 0.5

    @property
    def bound(self):
        return None

    def apply(self, update, server_round):
        return update
'''


def write_parts(folder: Path, name: str = "own.py") -> Path:
    """Write the file."""
    path = folder / name
    path.write_text(TEXT)
    return path

"""A file with parts of a user, which tests write into a temporary folder."""

from pathlib import Path

TEXT = '''
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt

from cadis.algorithm import BaseMethod
from cadis.algorithm.samplers import Uniform


@dataclass(frozen=True)
class Mine(BaseMethod):
    """FedAvg with parameters.

    Attributes:
        parameter: an integer, described in
            two lines.
        momentum: a float.
    """

    name: ClassVar[str] = "mine"
    parameter: Annotated[int, Ge(0)] = 1
    momentum: Annotated[float, Ge(0)] = 0.5
    lr: float = 2.0
    levels: tuple[int, ...] = (1, 2)
    quick: bool = True


@dataclass(frozen=True)
class AllClients(Uniform):
    """A sampler with a parameter.

    Attributes:
        eagerness: of the clients.
    """

    name: ClassVar[str] = "all-clients"
    eagerness: float = 1.0


@dataclass(frozen=True)
class Halve:
    """A transform that does not derive from Transform.

    Attributes:
        half: a fraction.
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
    """Write the file and return its path."""
    path = folder / name
    path.write_text(TEXT)
    return path

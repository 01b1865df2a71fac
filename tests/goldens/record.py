"""The file of golden hashes: what it holds, on which machine they hold, and what differs."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import torch

from goldens.hashing import Hashes

HASHES = Path(__file__).with_name("hashes.json")

_PACKAGES = ("torch", "numpy", "scikit-learn", "scipy", "flwr")
"""Packages that compute numbers, or draw random ones."""


@dataclass(frozen=True)
class Goldens:
    """Hashes of cases, and the machine that computed them.

    Attributes:
        machine: instruction set of the processor and versions of packages.
        cases: hashes by the name of the case.
    """

    machine: Mapping[str, str]
    cases: Mapping[str, Hashes]

    @classmethod
    def read(cls, path: Path = HASHES) -> "Goldens":
        """Read the file; a missing one holds nothing."""
        if not path.exists():
            return cls({}, {})
        content = json.loads(path.read_text(encoding="utf-8"))
        return cls(content["machine"], content["cases"])

    def write(self, path: Path = HASHES) -> None:
        """Write the file, sorted, so that changes are easy to read."""
        content = {"machine": dict(self.machine), "cases": dict(sorted(self.cases.items()))}
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    def machine_differences(self, machine: Mapping[str, str]) -> list[str]:
        """Return a line for each property in which another machine differs from this record."""
        return [
            f"{name}: {self.machine[name]} in the file, {value} here"
            for name, value in machine.items()
            if name in self.machine and self.machine[name] != value
        ]


def this_machine() -> dict[str, str]:
    """Return what the bits of a result depend on besides the code."""
    found = {"cpu": torch.backends.cpu.get_cpu_capability()}
    return found | {name: version(name) for name in _PACKAGES}


def differing(expected: Hashes | None, found: Hashes) -> list[str]:
    """Return the names of the results that differ, are missing or are new."""
    if expected is None:
        return ["new"]
    names = dict.fromkeys([*expected, *found])
    return [name for name in names if expected.get(name) != found.get(name)]

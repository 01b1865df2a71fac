"""The file of golden hashes, the machine that computed them, and differences."""

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
        """Read the file; a missing file gives no hashes."""
        if not path.exists():
            return cls({}, {})
        content = json.loads(path.read_text(encoding="utf-8"))
        return cls(content["machine"], content["cases"])

    def write(self, path: Path = HASHES) -> None:
        """Write the file, sorted, so that changes are easy to read."""
        content = {"machine": dict(self.machine), "cases": dict(sorted(self.cases.items()))}
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    def machine_differences(self, machine: Mapping[str, str]) -> list[str]:
        """Return one line per property in which another machine differs from this record."""
        return [
            f"{name}: {self.machine[name]} in the file, {value} here"
            for name, value in machine.items()
            if name in self.machine and self.machine[name] != value
        ]


def describe_machine() -> dict[str, str]:
    """Return the properties of the machine on which results depend bit for bit."""
    results = {"cpu": torch.backends.cpu.get_cpu_capability()}
    return results | {name: version(name) for name in _PACKAGES}


def find_differences(expected: Hashes | None, results: Hashes) -> list[str]:
    """Return the names of the results that differ, are missing or are new."""
    if expected is None:
        return ["new"]
    names = dict.fromkeys([*expected, *results])
    return [name for name in names if expected.get(name) != results.get(name)]

"""The paper's method, and its experiments, as files of options: one for each row of its tables."""

import re
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from cadis.algorithm import check_names
from cadis.store import PaperReport

_FOLDER = files("cadis.experiment") / "paper"


def preset_names() -> list[str]:
    """All presets: the method alone, then by dataset, partition and clients in a round."""
    names = [file.name.removesuffix(".toml") for file in _FOLDER.iterdir()]
    datasets, partitions = (
        ["pill", "mnist", "cifar10", "cifar100"],
        ["case", "clients", "mc", "pa", "bc", "uc"],
    )

    def order(name: str) -> tuple[int, int, int]:
        if name == "paper":
            return -1, 0, 0
        dataset, partition, per_round = name.split("-")
        return datasets.index(dataset), partitions.index(partition), int(per_round)

    return sorted(names, key=order)


def preset_text(name: str) -> str:
    """A preset's file, comments included."""
    check_names("preset", [name], preset_names())
    return (_FOLDER / f"{name}.toml").read_text(encoding="utf-8")


def read_preset(name: str) -> dict[str, Any]:
    """The options of a preset."""
    return tomllib.loads(preset_text(name))


def place_in_paper(name: str) -> str:
    """The table or figure of the paper that a preset makes; empty for the method alone."""
    found = re.search(r"^#.*?\b(Table [IVX]+|Fig\. \d+)", preset_text(name), re.MULTILINE)
    return found.group(1) if found else ""


def reported(name: str, options: Mapping[str, Any]) -> PaperReport | None:
    """What the paper reports of a preset, beside what is measured with these options.

    None if it reports nothing, or if something else is learned.
    """
    figures, own = paper_figures(name), read_preset(name)
    pictures = str(own.get("dataset")).startswith("images:")  # a user's own stand in for these
    if not figures or (options["dataset"] != own["dataset"] and not pictures):
        return None
    changed = tuple(
        f"{key} {options[key]} instead of {value}"
        for key, value in own.items()
        if not isinstance(value, dict)
        and key not in ("method", "dataset")
        and options[key] != value
    )
    return PaperReport(place_in_paper(name), figures, changed)


def paper_figures(name: str) -> dict[str, float]:
    """The paper's best top-1 accuracy of each method in percent, from the preset's comments."""
    found = re.findall(r"^#   (\w+) +(\d+\.\d+)$", preset_text(name), re.MULTILINE)
    return {method: float(figure) for method, figure in found}

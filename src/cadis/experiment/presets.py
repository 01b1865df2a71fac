"""The paper's method, and its experiments, as files of options: one for each row of its tables."""

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files
from typing import Any

from cadis.algorithm import check_names
from cadis.store import PaperReport

_FOLDER = files("cadis.experiment") / "paper"
_DATASETS = ("paper", "pill", "mnist", "cifar10", "cifar100")
_ORDER = (*_DATASETS, "case", "clients", "mc", "pa", "bc", "uc")


def preset_names() -> list[str]:
    """Return all presets: the method alone, then by dataset, partition and clients in a round."""
    names = [file.name.removesuffix(".toml") for file in _FOLDER.iterdir()]

    def order(name: str) -> list[int]:
        return [_ORDER.index(word) if word in _ORDER else int(word) for word in name.split("-")]

    return sorted(names, key=order)


def preset_text(name: str) -> str:
    """A preset's file, comments included."""
    check_names("preset", [name], preset_names())
    return (_FOLDER / f"{name}.toml").read_text(encoding="utf-8")


def read_preset(name: str) -> dict[str, Any]:
    """Return the options of a preset."""
    return without_paper(tomllib.loads(preset_text(name)))


def without_paper(options: dict[str, Any]) -> dict[str, Any]:
    """Return options without the table of what the paper reports, which is no option."""
    return {key: value for key, value in options.items() if key != "paper"}


def read_paper(name: str) -> PaperReport:
    """Return what the paper reports of a preset: where, and top-1 accuracies in percent."""
    paper = tomllib.loads(preset_text(name)).get("paper", {})
    return PaperReport(paper.get("place", ""), paper.get("accuracy", {}))


def reported(name: str, options: Mapping[str, Any]) -> PaperReport | None:
    """Return what the paper reports of a preset, and how these options differ from it.

    None if it reports nothing, or if something else is learned.
    """
    paper, own = read_paper(name), read_preset(name)
    pictures = str(own.get("dataset")).startswith("images:")  # a user's own stand in for these
    if not paper.accuracy or (options["dataset"] != own["dataset"] and not pictures):
        return None
    changed = tuple(
        f"{key} {options[key]} instead of {value}"
        for key, value in own.items()
        if not isinstance(value, dict)
        and key not in ("method", "dataset")
        and options[key] != value
    )
    return replace(paper, changed=changed)

"""Presets: the experiments of the CADIS paper as TOML files with options."""

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files
from typing import Any

from cadis.algorithm import check_names
from cadis.store import PaperResults

_FOLDER = files("cadis.experiment") / "paper"
_DATASETS = ("paper", "pill", "mnist", "cifar10", "cifar100")
_ORDER = (*_DATASETS, "case", "clients", "mc", "pa", "bc", "uc")


def list_presets() -> list[str]:
    """Return the names of all presets, sorted by dataset, partition and participants per round."""
    names = [file.name.removesuffix(".toml") for file in _FOLDER.iterdir()]

    def sort_key(name: str) -> list[int]:
        return [_ORDER.index(word) if word in _ORDER else int(word) for word in name.split("-")]

    return sorted(names, key=sort_key)


def read_preset_text(name: str) -> str:
    """Return the text of the file of a preset, with comments."""
    check_names("preset", [name], list_presets())
    return (_FOLDER / f"{name}.toml").read_text(encoding="utf-8")


def read_preset(name: str) -> dict[str, Any]:
    """Return the options of a preset."""
    return drop_paper_results(tomllib.loads(read_preset_text(name)))


def drop_paper_results(options: dict[str, Any]) -> dict[str, Any]:
    """Remove the table "paper", which has the results of the paper instead of options."""
    return {key: value for key, value in options.items() if key != "paper"}


def read_paper(name: str) -> PaperResults:
    """Return the results of the paper for a preset: the table, and top-1 accuracies in percent."""
    paper = tomllib.loads(read_preset_text(name)).get("paper", {})
    return PaperResults(paper.get("place", ""), paper.get("accuracy", {}))


def match_paper_results(name: str, options: Mapping[str, Any]) -> PaperResults | None:
    """Return the results of the paper for a preset, and how the options differ from the preset.

    Return None if the paper has no results, or if the options name another dataset. The pill images
    of the paper are not public, so any image folder may replace them.
    """
    paper, preset = read_paper(name), read_preset(name)
    is_image_folder = str(preset.get("dataset")).startswith("images:")
    if not paper.accuracy or (options["dataset"] != preset["dataset"] and not is_image_folder):
        return None
    changed = tuple(
        f"{key} {options[key]} instead of {value}"
        for key, value in preset.items()
        if not isinstance(value, dict)
        and key not in ("method", "dataset")
        and options[key] != value
    )
    return replace(paper, changed=changed)

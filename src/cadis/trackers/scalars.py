"""The numbers that all trackers get, under names that all of them accept."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from statistics import fmean
from typing import Any, TypeAlias

from cadis.server import RoundRecord
from cadis.store import (
    client_spread,
    clusters_of,
    confidence_of,
    mean_accuracy,
    scalar_of,
    threshold_of,
    told_scalars,
)

Scalar: TypeAlias = str | int | float | bool

_MOST_CLASSES = 20
"""With more of them, a curve for each class is too much to look at."""

_LONGEST = 200
"""Characters of a class's name; MLflow takes names of 250 in all."""


def scalars(
    record: RoundRecord, rare_classes: Sequence[int], class_names: Sequence[str]
) -> dict[str, float]:
    """A round's numbers by name; what was not measured is left out."""
    tested, clusters = bool(record.class_accuracy), clusters_of(record)
    few = len(class_names) <= _MOST_CLASSES
    found = {
        "accuracy": record.accuracy,
        "loss": record.loss,
        "rare_accuracy": mean_accuracy(record, rare_classes) if tested else None,
        "clusters": None if clusters is None else len(set(clusters)),
        "threshold": threshold_of(record),
        "confidence": confidence_of(record),
        "rejected": len(record.rejected),
        **{f"seconds/{name}": value for name, value in vars(record.seconds).items()},
        **_named("class_accuracy", class_names if few else (), record.class_accuracy),
        **{f"clients/{k}": v for k, v in client_spread(record.client_accuracy or ()).items()},
        **_reported(record),
    }
    return {
        name: float(value) for name, value in found.items() if value is not None and isfinite(value)
    }


def flatten(options: Mapping[str, Any], prefix: str = "") -> dict[str, Scalar]:
    """Options without tables: those of CADIS become ``cadis.threshold`` and so on.

    Lists become JSON, and what is None is left out.
    """
    flat: dict[str, Scalar] = {}
    for key, value in options.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        elif value is not None:
            plain = isinstance(value, str | int | float)
            flat[f"{prefix}{key}"] = value if plain else json.dumps(value)
    return flat


def summary_scalars(summary: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of ``summary.json``, without lists and matrices."""
    return {
        f"summary/{name}": float(value)
        for name, value in flatten(summary).items()
        if isinstance(value, int | float) and isfinite(value)
    }


def _reported(record: RoundRecord) -> dict[str, float | None]:
    """Return what only some tasks, methods and clients tell."""
    losses = [loss for loss in record.client_loss if loss is not None]
    names, models = told_scalars(record), [model.name for model in record.models]
    return {
        "clients/loss": fmean(losses) if losses else None,
        **_named("measures", list(record.measures), record.measures.values()),
        **_named("report", names, [scalar_of(record, name) for name in names]),
        **_named("models/accuracy", models, [model.accuracy for model in record.models]),
        **_named("models/clients", models, [model.clients for model in record.models]),
    }


def _named(
    prefix: str, names: Sequence[str], values: Iterable[float | None]
) -> dict[str, float | None]:
    """Return values by names of letters, digits, points, dashes and underscores.

    Names are numbered if two become the same. There may be no values: not all tests are by class.
    """
    clean = [re.sub(r"[^-\w.]", "_", name)[:_LONGEST].strip(".") or "_" for name in names]
    if len({name.lower() for name in clean}) < len(clean):  # some databases ignore the case
        clean = [f"{label}-{name}" for label, name in enumerate(clean)]
    return {f"{prefix}/{name}": value for name, value in zip(clean, values, strict=False)}

"""The numbers that all trackers get, under names that all of them accept."""

import json
import re
from collections.abc import Mapping, Sequence
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
    found = {
        "accuracy": record.accuracy,
        "loss": record.loss,
        "rare_accuracy": mean_accuracy(record, rare_classes) if tested else None,
        "clusters": None if clusters is None else len(set(clusters)),
        "threshold": threshold_of(record),
        "confidence": confidence_of(record),
        "rejected": len(record.rejected),
        **{f"seconds/{name}": value for name, value in vars(record.seconds).items()},
        **_by_class(record, class_names),
        **{f"clients/{k}": v for k, v in client_spread(record.client_accuracy or ()).items()},
        **_told(record),
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


def _by_class(record: RoundRecord, class_names: Sequence[str]) -> dict[str, float | None]:
    if len(class_names) > _MOST_CLASSES:
        return {}
    names = _accepted(class_names)
    pairs = zip(names, record.class_accuracy, strict=False)  # nobody may have tested by class
    return {f"class_accuracy/{name}": accuracy for name, accuracy in pairs}


def _told(record: RoundRecord) -> dict[str, float | None]:
    """What only some tasks, methods and clients tell."""
    losses = [loss for loss in record.client_loss if loss is not None]
    reported = {name: scalar_of(record, name) for name in told_scalars(record)}
    models = {model.name: model for model in record.models}
    return {
        "clients/loss": fmean(losses) if losses else None,
        **_named("measures", record.measures),
        **_named("report", reported),
        **_named("models/accuracy", {name: m.accuracy for name, m in models.items()}),
        **_named("models/clients", {name: m.clients for name, m in models.items()}),
    }


def _named(prefix: str, values: Mapping[str, float | None]) -> dict[str, float | None]:
    names = _accepted(list(values))
    return {f"{prefix}/{name}": v for name, v in zip(names, values.values(), strict=True)}


def _accepted(names: Sequence[str]) -> list[str]:
    """Names of letters, digits, points, dashes and underscores; numbered if two become the same."""
    clean = [re.sub(r"[^-\w.]", "_", name)[:_LONGEST].strip(".") or "_" for name in names]
    if len({name.lower() for name in clean}) < len(clean):  # some databases ignore the case
        clean = [f"{label}-{name}" for label, name in enumerate(clean)]
    return clean

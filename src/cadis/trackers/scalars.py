"""Scalars of rounds and runs, with names that all trackers accept."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from statistics import fmean
from typing import Any, TypeAlias

from cadis.server import RoundRecord
from cadis.store import (
    compute_client_spread,
    compute_mean_accuracy,
    get_clusters,
    get_confidence,
    get_scalar,
    get_threshold,
    list_other_scalars,
)

Scalar: TypeAlias = str | int | float | bool

_MAX_CLASSES = 20
"""Maximum number of classes with a curve for each class; more curves are hard to read."""

_MAX_NAME_LENGTH = 200
"""Maximum length of a class name; MLflow accepts 250 characters including the prefix."""


def collect_scalars(
    record: RoundRecord, rare_classes: Sequence[int], class_names: Sequence[str]
) -> dict[str, float]:
    """Return the scalars of a round by name, as far as they are known.

    Args:
        record: the record of the round.
        rare_classes: indices of the rare classes.
        class_names: names of all classes.
    """
    is_tested, clusters = bool(record.class_accuracy), get_clusters(record)
    curve_names = class_names if len(class_names) <= _MAX_CLASSES else ()
    spread = compute_client_spread(record.client_accuracy or ())
    scalars = {
        "accuracy": record.accuracy,
        "loss": record.loss,
        "rare_accuracy": compute_mean_accuracy(record, rare_classes) if is_tested else None,
        "clusters": None if clusters is None else len(set(clusters)),
        "threshold": get_threshold(record),
        "confidence": get_confidence(record),
        "rejected": len(record.rejected),
        **{f"seconds/{name}": value for name, value in vars(record.seconds).items()},
        **_add_prefix("class_accuracy", curve_names, record.class_accuracy),
        **{f"clients/{name}": value for name, value in spread.items()},
        **_collect_optional(record),
    }
    return {
        name: float(value)
        for name, value in scalars.items()
        if value is not None and isfinite(value)
    }


def flatten_options(options: Mapping[str, Any], prefix: str = "") -> dict[str, Scalar]:
    """Return options without nested tables; their names become ``cadis.threshold`` and so on.

    Lists are converted to JSON. Options that are None are omitted.
    """
    flat: dict[str, Scalar] = {}
    for key, value in options.items():
        if isinstance(value, Mapping):
            flat |= flatten_options(value, f"{prefix}{key}.")
        elif value is not None:
            is_scalar = isinstance(value, str | int | float)
            flat[f"{prefix}{key}"] = value if is_scalar else json.dumps(value)
    return flat


def collect_summary_scalars(summary: Mapping[str, Any]) -> dict[str, float]:
    """Return the scalars of ``summary.json``, without lists and matrices."""
    return {
        f"summary/{name}": float(value)
        for name, value in flatten_options(summary).items()
        if isinstance(value, int | float) and isfinite(value)
    }


def _collect_optional(record: RoundRecord) -> dict[str, float | None]:
    """Return the scalars that only some tasks, methods and clients report."""
    losses = [loss for loss in record.client_loss if loss is not None]
    names, models = list_other_scalars(record), [model.name for model in record.models]
    return {
        "clients/loss": fmean(losses) if losses else None,
        **_add_prefix("measures", list(record.metrics), record.metrics.values()),
        **_add_prefix("report", names, [get_scalar(record, name) for name in names]),
        **_add_prefix("models/accuracy", models, [model.accuracy for model in record.models]),
        **_add_prefix("models/clients", models, [model.clients for model in record.models]),
    }


def _add_prefix(
    prefix: str, names: Sequence[str], values: Iterable[float | None]
) -> dict[str, float | None]:
    """Return values by their name with a prefix, without characters that trackers reject.

    Characters other than letters, digits, "-", "." and "_" become "_". If two names become equal,
    all names get numbers. There may be fewer values than names, since not all evaluations have the
    accuracy on each class.
    """
    clean = [re.sub(r"[^-\w.]", "_", name)[:_MAX_NAME_LENGTH].strip(".") or "_" for name in names]
    if len({name.lower() for name in clean}) < len(clean):  # some databases ignore case
        clean = [f"{index}-{name}" for index, name in enumerate(clean)]
    return {f"{prefix}/{name}": value for name, value in zip(clean, values, strict=False)}

"""Check that the files of a run are consistent with each other, as reports require.

The structure of each file is checked when it is read.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from math import isfinite
from pathlib import Path
from typing import Any

from cadis.algorithm.methods import METHODS
from cadis.errors import CadisError
from cadis.server import RoundRecord
from cadis.store import DamagedError, find_best_round, find_last_tested, find_report_errors
from cadis.types import ClientId

_DAMAGE = (
    OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError
)  # fmt: skip
"""Exceptions that damaged files can cause; RuntimeError is for JSON that is nested too deeply."""
_MAX_COUNT = 2**53  # larger integers are not exact in JavaScript


@contextmanager
def convert_read_errors(path: Path) -> Iterator[None]:
    """Convert any error while a file or folder is read to a CadisError that names it."""
    try:
        yield
    except _DAMAGE as error:
        is_named = str(path) in str(error) or f"folder {path.parent}" in str(error)
        if isinstance(error, DamagedError) or (isinstance(error, CadisError) and is_named):
            raise
        raise CadisError(f"{path} is missing or damaged: {_format_reason(error)}.") from None


def _format_reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, KeyError):
        return f"there is no {error}"
    return str(error).rstrip(".") or type(error).__name__


def check_options(options: Mapping[str, Any]) -> None:
    """Raise an error if rounds or seed are not integers; other options are not checked."""
    for name in ("rounds", "seed"):
        value = options.get(name, 0)
        if not isinstance(value, int) or isinstance(value, bool):
            raise CadisError(f"{name} is {value!r}, which is not a whole number")


def check_federation(federation: Mapping[str, Any]) -> None:
    """Raise an error if client ids repeat, or if sample counts do not match the classes."""
    clients, num_classes = federation["clients"], len(federation["classes"])
    if len({client["id"] for client in clients}) < len(clients):
        raise CadisError("two clients have the same id")
    for client in clients:
        for counts in (client["samples"], client.get("test_samples")):
            has_all = counts is None or len(counts) == num_classes
            if not has_all or not all(0 <= count <= _MAX_COUNT for count in counts or ()):
                raise CadisError(f"client {client['id']} does not have a count for each class")
        if abs(client["cluster"] or 0) > _MAX_COUNT:
            cluster = client["cluster"]
            raise CadisError(f"client {client['id']} is in cluster {cluster}, which is too large")


def check_summary(summary: Mapping[str, Any], federation: Mapping[str, Any]) -> None:
    """Raise an error if a summary has a wrong number of classes, or NaN or infinite values."""
    size, confusion = len(federation["classes"]), summary["confusion"]
    if confusion is not None and [len(row) for row in confusion] != [size] * size:
        raise CadisError("confusion does not have a row and a column for each class")
    for name in ("rare_accuracy", "round_agreement"):
        value = summary.get(name)
        if value is not None and not isfinite(value):
            raise CadisError(f"{name} is NaN or infinite")


def check_agreement(summary: Mapping[str, Any], history: Sequence[RoundRecord]) -> None:
    """Raise an error if the accuracies in the summary differ from the history."""
    best = find_best_round(history, summary.get("headline", "accuracy"))
    expected = {"accuracy": find_last_tested(history).accuracy, "best_accuracy": best.accuracy}
    for name, value in expected.items():
        if summary[name] != value:
            raise CadisError(f"{name} is {summary[name]}, but {value} in history.jsonl")


def check_history(
    history: Sequence[RoundRecord], method_name: str, federation: Mapping[str, Any]
) -> None:
    """Raise an error if records contradict the federation or themselves.

    The reports of user-defined methods are not checked, since they may contain anything.
    """
    clients = [client["id"] for client in federation["clients"]]
    method = METHODS.get(method_name)
    known = None if method is not None and method.pools_clients else set(clients)
    for record in history:
        errors = chain(
            _find_client_errors(record, known),
            _find_length_errors(record, len(clients), len(federation["classes"])),
            [] if method is None else find_report_errors(record),
        )
        for error in errors:
            raise CadisError(f"in round {record.round}, {error}")


def _find_client_errors(record: RoundRecord, known: set[ClientId] | None) -> Iterator[str]:
    participants = set(record.participants)
    if not participants:
        yield "no client took part"
    if len(participants) < len(record.participants):
        yield "a client took part twice"
    if known is not None and not participants <= known:
        unknown = min(map(str, participants - known))
        yield f"client {unknown} took part but is not in federation.json"


def _find_length_errors(record: RoundRecord, num_clients: int, num_classes: int) -> Iterator[str]:
    size = len(record.participants)
    lists = [  # empty lists are allowed where the values are optional
        ("weights", record.weights, size),
        ("class_accuracy", record.class_accuracy or None, num_classes),
        ("client_accuracy", record.client_accuracy, num_clients),
        ("client_loss", record.client_loss or None, size),
        ("client_models", record.client_models or None, size),
    ]
    for name, values, expected in lists:
        if values is not None and len(values) != expected:
            yield f"{name} has {len(values)} entries, not {expected}"
    names = [model.name for model in record.models]
    if len(set(names)) < len(names):
        yield "two models have the same name"
    for unknown in sorted(set(record.client_models) - set(names)):
        yield f"a client trained the model {unknown}, which is not one of the models"

"""Do the files of a run fit together, and say what reports rely on?

That each of them has the right shape was checked when it was read.
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
from cadis.store import DamagedError, best_round, last_tested, unfit
from cadis.types import ClientId

_DAMAGE = (
    OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError
)  # fmt: skip
"""What files of the wrong content can end in, too deep nesting among it."""
_LARGEST = 2**53  # the largest count that every program reads as what it is


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Whatever is wrong with a file or folder while it is read is one sentence that names it."""
    try:
        yield
    except _DAMAGE as error:
        told = str(path) in str(error) or f"folder {path.parent}" in str(error)
        if isinstance(error, DamagedError) or (isinstance(error, CadisError) and told):
            raise  # where the damage is
        raise CadisError(f"{path} is missing or damaged: {_reason(error)}.") from None


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, KeyError):
        return f"there is no {error}"
    return str(error).rstrip(".") or type(error).__name__


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse options whose numbers are none; parts may have tables of any name and content."""
    for name in ("rounds", "seed"):
        value = options.get(name, 0)
        if not isinstance(value, int) or isinstance(value, bool):
            raise CadisError(f"{name} is {value!r}, which is not a whole number")


def check_federation(federation: Mapping[str, Any]) -> None:
    """Refuse clients that cannot be told apart, or have classes that there are not."""
    clients, classes = federation["clients"], len(federation["classes"])
    if len({client["id"] for client in clients}) < len(clients):
        raise CadisError("two clients have the same id")
    for client in clients:
        told = [client["samples"], client.get("test_samples")]
        for counts in told:
            fits = counts is None or len(counts) == classes
            if not fits or not all(0 <= count <= _LARGEST for count in counts or ()):
                raise CadisError(f"client {client['id']} does not have a count for each class")
        if abs(client["cluster"] or 0) > _LARGEST:
            raise CadisError(f"client {client['id']} is in cluster {client['cluster']}")


def check_summary(summary: Mapping[str, Any], federation: Mapping[str, Any]) -> None:
    """Refuse a summary of other classes, or with numbers that are none."""
    size, confusion = len(federation["classes"]), summary["confusion"]
    if confusion is not None and [len(row) for row in confusion] != [size] * size:
        raise CadisError("confusion does not have a row and a column for each class")
    for name in ("rare_accuracy", "round_agreement"):
        value = summary.get(name)
        if value is not None and not isfinite(value):
            raise CadisError(f"{name} is {value}, which is not a number")


def check_agreement(summary: Mapping[str, Any], history: Sequence[RoundRecord]) -> None:
    """Refuse a summary whose accuracies are not those of the history."""
    best = best_round(history, summary.get("headline", "accuracy"))
    expected = {"accuracy": last_tested(history).accuracy, "best_accuracy": best.accuracy}
    for name, value in expected.items():
        if summary[name] != value:
            raise CadisError(f"{name} is {summary[name]}, but {value} in history.jsonl")


def check_history(
    history: Sequence[RoundRecord], method_name: str, federation: Mapping[str, Any]
) -> None:
    """Refuse records of other clients or classes, and such that contradict themselves.

    What a method of the user's own tells besides may be anything.
    """
    clients = [client["id"] for client in federation["clients"]]
    method = METHODS.get(method_name)
    known = None if method is not None and method.pools_clients else set(clients)
    for record in history:
        complaints = chain(
            _about_clients(record, known),
            _about_numbers(record, len(clients), len(federation["classes"])),
            [] if method is None else unfit(record),
        )
        for complaint in complaints:
            raise CadisError(f"in round {record.round}, {complaint}")


def _about_clients(record: RoundRecord, known: set[ClientId] | None) -> Iterator[str]:
    who = set(record.participants)
    if not who:
        yield "nobody took part"
    if len(who) < len(record.participants):
        yield "a client took part twice"
    if known is not None and not who <= known:
        yield f"client {min(map(str, who - known))} took part, who is not in federation.json"


def _about_numbers(record: RoundRecord, clients: int, classes: int) -> Iterator[str]:
    size = len(record.participants)
    lists = [
        ("weights", record.weights, size),
        ("class_accuracy", record.class_accuracy or None, classes),  # nobody may have tested
        ("client_accuracy", record.client_accuracy, clients),
        ("client_loss", record.client_loss or None, size),  # nobody may have told
        ("client_models", record.client_models or None, size),  # there may be one model
    ]
    for name, values, expected in lists:
        if values is not None and len(values) != expected:
            yield f"{name} has {len(values)} entries, not {expected}"
    names = [model.name for model in record.models]
    if len(set(names)) < len(names):
        yield "two models have the same name"
    for unknown in sorted(set(record.client_models) - set(names)):
        yield f"a client trained model {unknown}, which is not one of the models"

"""``FILE.py:FUNCTION``: data that a user's own function returns."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from cadis._io import Callbacks, load_user_code, one_line
from cadis.data.conversion import as_examples, class_names, single
from cadis.data.examples import Dataset, Examples, joined
from cadis.data.holding_out import held_out
from cadis.errors import CadisError

_KEYS = ("clients", "test", "client_tests", "classes")
_FORM = (
    '{"clients": {name: data}, "test": data}, where data are inputs and labels, or a '
    "torch.utils.data.Dataset"
)


def load_user_data(name: str, callbacks: Callbacks) -> Dataset:
    """What a user's function returns, as :func:`as_dataset` takes it.

    Args:
        name: ``FILE.py:FUNCTION``; it is called without anything.
        callbacks: called as it goes on.
    """
    function = load_user_code(name)
    if not callable(function):
        raise CadisError(f"{name} is no function that returns data.")
    try:
        given = function()
    except (KeyboardInterrupt, CadisError):
        raise
    except BaseException as error:  # whatever a user's code may raise, SystemExit too
        raise CadisError(f"{name} could not load its data: {one_line(error)}.") from error
    return as_dataset(given, name, callbacks)


def as_dataset(given: object, name: str, callbacks: Callbacks) -> Dataset:
    """A dataset of what a user has.

    Args:
        given: a dataset; a pair of clients and test data; or a dict of ``clients``, and perhaps
            ``test``, ``client_tests`` and ``classes``. Clients are a dict by name, or a list;
            whatever :func:`as_examples` takes is data of one. Without test data, a tenth of each
            class is set apart.
        name: what the user calls it.
        callbacks: called as it goes on.
    """
    if isinstance(given, Dataset):
        return replace(given, name=name)
    if isinstance(given, tuple | list) and len(given) == 2:
        given = dict(zip(_KEYS[:2], given, strict=True))
    if not isinstance(given, Mapping) or "clients" not in given or not {*given} <= {*_KEYS}:
        raise CadisError(f"{name} returned neither a cadis.data.Dataset nor {_FORM}.")
    clients = by_name(given["clients"], "Client")
    for client in [client for client, own in clients.items() if not len(own)]:
        callbacks.say(f"Client {client} has no samples; it is left out.")
        del clients[client]
    if not clients:
        raise CadisError(f"{name} returned no client that has any samples.")
    names = given.get("classes") or class_names(_first(given["clients"]))
    owned = {client: single(own) for client, own in clients.items()}
    _check_alike(owned)
    _check_finite(owned, "Client")
    whole = Dataset(name, joined([*owned.values()]), owned[next(iter(owned))], (), _spans(owned))
    return _named(_with_tests(whole, given), tuple(map(str, names)))


def by_name(data: Any, what: str) -> dict[str, Examples]:
    """Everybody's examples by name, of a dict, or of a list by position."""
    if isinstance(data, Mapping):
        pairs = [(str(name), each) for name, each in data.items()]
    elif isinstance(data, Iterable):
        pairs = [(str(number), each) for number, each in enumerate(data)]
    else:
        raise CadisError(f"The clients must be a dict or a list, not a {type(data).__name__}.")
    return {name: as_examples(each, f"{what} {name}") for name, each in pairs}


def _first(data: Any) -> object:
    """Any client's data, which may know the names of the classes."""
    if isinstance(data, Mapping):
        return next(iter(data.values()), None)
    return data[0] if isinstance(data, list | tuple) and data else None


def _with_tests(whole: Dataset, given: Mapping[str, Any]) -> Dataset:
    """With what is tested on, and whose that is."""
    own = {
        client: single(each)
        for client, each in by_name(given.get("client_tests") or {}, "The test data of").items()
        if len(each)
    }
    if strange := own.keys() - whole.owners.keys():
        raise CadisError(f"There are test data of {min(strange)}, which is no client.")
    if given.get("test") is not None:
        test = single(as_examples(given["test"], "The test set"))
        _check_alike({**_example(whole), "The test set": test, **own})
        return replace(whole, test=test, client_tests=own)
    if own:
        _check_alike({**_example(whole), **own})
        _check_finite(own, "The test data of client")
        return replace(whole, test=joined([*own.values()]), test_owners=_spans(own))
    return _held_apart(whole)


def _example(whole: Dataset) -> dict[str, Examples]:
    return {next(iter(whole.owners)): whole.train}


def _held_apart(whole: Dataset) -> Dataset:
    """With a tenth of each class set apart, which stays that of its owner."""
    owner_of = {int(n): client for client, own in whole.owners.items() for n in own}
    labels = whole.train.labels.tolist()
    held = held_out(labels, [owner_of[n] for n in range(len(labels))])
    apart = torch.tensor([n in held for n in range(len(labels))])
    if not held:
        raise CadisError("There are too few samples to set some apart; return test data as well.")
    sides = []
    for chosen in (~apart, apart):
        position = chosen.cumsum(0) - 1
        own = {client: position[o[chosen[o]]] for client, o in whole.owners.items()}
        sides.append({client: places for client, places in own.items() if len(places)})
    train, test = (whole.train.take(chosen.nonzero()[:, 0]) for chosen in (~apart, apart))
    return replace(whole, train=train, test=test, owners=sides[0], test_owners=sides[1])


def _named(whole: Dataset, names: tuple[str, ...]) -> Dataset:
    """With names of the classes; by default their numbers."""
    tests = [whole.test, *whole.client_tests.values()]
    highest = max(int(part.labels.max()) for part in (whole.train, *tests) if len(part))
    if names and highest >= len(names):
        raise CadisError(f"There is a label {highest}, but {len(names)} classes have names.")
    return replace(whole, classes=names or tuple(map(str, range(highest + 1))))


def _check_alike(parts: Mapping[str, Examples]) -> None:
    """Refuse what cannot be one dataset; the federation checks the rest."""
    first, like = next(iter(parts.items()))
    for name, examples in parts.items():
        examples.check_form(name)
        if (examples.kind, examples.scaling) != (like.kind, like.scaling):
            raise CadisError(
                f"{name} has inputs of {examples.kind}, but {first} has inputs of {like.kind}; "
                "make them alike."
            )


def _check_finite(parts: Mapping[str, Examples], what: str) -> None:
    """Refuse broken inputs while samples still have the numbers that the user knows them by."""
    for name, examples in parts.items():
        examples.check_finite(f"{what} {name}")


def _spans(parts: Mapping[str, Examples]) -> dict[str, Tensor]:
    """Where each one's examples are, one after the other."""
    ends = torch.tensor([len(part) for part in parts.values()]).cumsum(0).tolist()
    spans = zip([0, *ends], ends, strict=False)
    return {name: torch.arange(*span) for name, span in zip(parts, spans, strict=True)}

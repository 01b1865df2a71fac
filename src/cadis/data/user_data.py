"""``FILE.py:FUNCTION``: data that a user's own function returns."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from cadis._io import Callbacks, load_user_code, one_line
from cadis.data.conversion import as_examples, class_names, single
from cadis.data.examples import Dataset, Examples, joined, positions_by_owner
from cadis.data.holding_out import held_out_tenth
from cadis.errors import CadisError

_KEYS = ("clients", "test", "client_tests", "classes")
_FORM = (
    '{"clients": {name: data}, "test": data}, where data are inputs and labels, or a '
    "torch.utils.data.Dataset"
)


def load_user_data(name: str, callbacks: Callbacks) -> Dataset:
    """Load what a user's function ``FILE.py:FUNCTION`` returns, as :func:`as_dataset` takes it."""
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
    """Make a dataset of what a user has.

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
    for client, own in owned.items():  # while samples have the numbers that the user knows
        own.check_finite(f"Client {client}")
    train = joined([*owned.values()])
    whole = _with_tests(Dataset(name, train, train, (), _spans(owned)), given)
    return _named(whole, tuple(map(str, names)))


def by_name(data: Any, what: str) -> dict[str, Examples]:
    """Return everybody's examples by name, of a dict, or of a list by position."""
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
    """Add what is tested on, and whose that is."""
    own = {
        client: single(each)
        for client, each in by_name(given.get("client_tests") or {}, "The test data of").items()
        if len(each)
    }
    if strange := own.keys() - whole.owners.keys():
        raise CadisError(f"There are test data of {min(strange)}, which is no client.")
    trained = {next(iter(whole.owners)): whole.train}
    if given.get("test") is not None:
        test = single(as_examples(given["test"], "The test set"))
        _check_alike({**trained, "The test set": test, **own})
        return replace(whole, test=test, client_tests=own)
    if own:
        _check_alike({**trained, **own})
        for client, each in own.items():
            each.check_finite(f"The test data of client {client}")
        return replace(whole, test=joined([*own.values()]), test_owners=_spans(own))
    return _held_apart(whole)


def _held_apart(whole: Dataset) -> Dataset:
    """Set a tenth of each class apart, which stays that of its owner."""
    owners = [client for client, own in whole.owners.items() for _ in own]
    apart = held_out_tenth(whole.train.labels.tolist(), owners)
    if not apart.any():
        raise CadisError("There are too few samples to set some apart; return test data as well.")
    train_owners, test_owners = (
        [owner for owner, held in zip(owners, apart.tolist(), strict=True) if held is side]
        for side in (False, True)
    )
    return replace(
        whole,
        train=whole.train.take(~apart),
        test=whole.train.take(apart),
        owners=positions_by_owner(train_owners),
        test_owners=positions_by_owner(test_owners),
    )


def _named(whole: Dataset, names: tuple[str, ...]) -> Dataset:
    """Add names of the classes; by default their numbers."""
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


def _spans(parts: Mapping[str, Examples]) -> dict[str, Tensor]:
    """Return the positions of each one's examples, one after the other."""
    sizes = [len(part) for part in parts.values()]
    return dict(zip(parts, torch.arange(sum(sizes)).split(sizes), strict=True))

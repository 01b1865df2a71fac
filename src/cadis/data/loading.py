"""Datasets by name: the embedded digits, published ones, and a user's own."""

from collections.abc import Mapping
from pathlib import Path

from cadis._io import NO_CALLBACKS, Callbacks, at_home
from cadis.data.digits import digits
from cadis.data.examples import Dataset
from cadis.data.images import load_images
from cadis.data.published import (
    CATALOGUE,
    fetch,
    find,
    load_published,
    missing_files,
    picture_cache,
    roots,
)
from cadis.data.tables import TableColumns, load_table
from cadis.data.user_data import load_user_data
from cadis.errors import CadisError

DATASETS = ("digits", *CATALOGUE, "images:FOLDER", "csv:PLACE", "parquet:PLACE", "FILE.py:FUNCTION")
"""Names of datasets, as a user types them."""

TABLES = ("csv:", "parquet:")
OWN_PREFIXES = ("images:", *TABLES)
"""What stands before the place of a user's own files."""

_NAMED = 10
_LARGE = 1000.0
_FEW = 30
"""Of fewer test samples, accuracy says little."""


def is_dataset_name(name: str) -> bool:
    """Return whether a dataset may be called so: one of ours, a place, or a user's function."""
    return name in ("digits", *CATALOGUE) or name.startswith(OWN_PREFIXES) or _is_code(name)


def load(
    name: str,
    data_dir: Path | str | None = None,
    offline: bool = False,
    image_size: int = 224,
    callbacks: Callbacks = NO_CALLBACKS,
    columns: TableColumns | None = None,
    cache: bool = True,
) -> Dataset:
    """Load a dataset by name.

    Args:
        name: one of :data:`DATASETS`, with the place of your own pictures or tables, or a
            function of yours.
        data_dir: where to look for files first, and where to download them to.
        offline: never download.
        image_size: to which pictures of ``images:`` are resized.
        callbacks: called as it goes on.
        columns: what the columns of tables are.
        cache: whether decoded pictures are kept in the user's cache.
    """
    if name == "digits":
        return digits()
    if name in CATALOGUE:
        return _published(name, data_dir, offline, callbacks)
    prefix, _, place = name.partition(":")
    if name.startswith(OWN_PREFIXES) and not place:
        raise CadisError(f"Name the place of your data, as in {prefix}:FOLDER.")
    if name.startswith(TABLES):
        dataset = load_table(name, at_home(place), columns or TableColumns(), callbacks)
    elif name.startswith(OWN_PREFIXES):
        dataset = load_images(at_home(place), image_size, picture_cache(cache), callbacks)
    elif _is_code(name):
        dataset = load_user_data(name, callbacks)
    else:
        raise CadisError(f"There is no dataset '{name}'; there are: {', '.join(DATASETS)}.")
    tell_amounts(dataset, callbacks)
    return dataset


def _is_code(name: str) -> bool:
    """Return whether it names a user's function: in a file, or in a module of a package."""
    place, colon, _ = name.rpartition(":")
    return bool(colon) and "." in place and not name.startswith(OWN_PREFIXES)


def _published(
    name: str, data_dir: Path | str | None, offline: bool, callbacks: Callbacks
) -> Dataset:
    published, places = CATALOGUE[name], roots(at_home(data_dir) if data_dir else None)
    found = find(published, places)
    if found is None:
        if offline:
            lack = missing_files(published, places)
            where = lack or f"it is not in {', '.join(map(str, places))}"
            raise CadisError(
                f"{name} is missing: {where}; fetch it without --offline, or name the folder that "
                "has its files by --data-dir."
            )
        fetch(published, places[0], callbacks)
        found = find(published, places[:1])
        assert found is not None
    return load_published(published, found)


def tell_amounts(dataset: Dataset, callbacks: Callbacks) -> None:
    """Say how much every client trains and is tested on, and what is too little or too large."""
    if len(dataset.test) < _FEW:
        step = f"{1 / len(dataset.test):.2g}"
        callbacks.say(
            f"The test set has {len(dataset.test)} samples: accuracy moves in steps of {step}."
        )
    if dataset.train.inputs.is_floating_point():
        lowest, highest = dataset.train.inputs.aminmax()  # without a copy of all
        largest = max(-float(lowest), float(highest))
        if _LARGE < largest < float("inf"):
            callbacks.say(
                f"Inputs are as large as {largest:,.0f}, at which training may diverge; scale them "
                "to around 1."
            )
    if dataset.owners:
        trained = {client: len(own) for client, own in dataset.owners.items()}
        tested = {client: len(own) for client, own in dataset.test_owners.items()}
        tested |= {client: len(own) for client, own in dataset.client_tests.items()}
        _tell_of_clients(trained, tested, callbacks)


def _tell_of_clients(
    trained: Mapping[str, int], tested: Mapping[str, int], callbacks: Callbacks
) -> None:
    tests = {client: tested.get(client, 0) for client in trained}
    if len(trained) > _NAMED:
        fewest, most = min(tests.values()), max(tests.values())
        apart = f", and {fewest:,} to {most:,} to test on" if tested else ""
        callbacks.say(
            f"{len(trained)} clients have {min(trained.values()):,} to {max(trained.values()):,} "
            f"samples to train on{apart}."
        )
    else:
        apart = " + to test on" if tested else ""
        each = [
            f"{client} {number:,}{f' + {tests[client]:,}' if tested else ''}"
            for client, number in trained.items()
        ]
        callbacks.say(f"Samples to train on{apart}: {', '.join(each)}.")
    if strangers := [client for client in tested if client not in trained]:
        callbacks.say(
            f"{_some(strangers)} only test samples, and so no part in training: give them some to "
            "train on, or take them as they are."
        )
    none = [client for client, number in tests.items() if not number]
    if tested and none:
        callbacks.say(f"{_some(none)} no test samples, so that nothing is known of them.")
    few = {client: number for client, number in tests.items() if 0 < number < _FEW}
    if few:
        client = min(few, key=lambda name: few[name])
        callbacks.say(
            f"{len(few)} of {len(tests)} clients have fewer than {_FEW} test samples of their "
            f"own; {client} has {few[client]}, so that its accuracy moves in steps of "
            f"{1 / few[client]:.2g}."
        )


def _some(names: list[str]) -> str:
    listed = ", ".join(names[:_NAMED])
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{listed}{more} {'has' if len(names) == 1 else 'have'}"

"""Datasets by name: the embedded digits, published ones, and a user's own."""

from pathlib import Path

from cadis._io import NO_CALLBACKS, Callbacks, at_home
from cadis.data.data_warnings import tell_sites
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


def is_dataset_name(name: str) -> bool:
    """Whether there can be a dataset of that name: one of ours, a place, or a user's function."""
    return name in DATASETS[: len(CATALOGUE) + 1] or name.startswith(OWN_PREFIXES) or _is_code(name)


def load(
    name: str,
    data_dir: Path | str | None = None,
    offline: bool = False,
    image_size: int = 224,
    callbacks: Callbacks = NO_CALLBACKS,
    columns: TableColumns | None = None,
    cache: bool = True,
) -> Dataset:
    """A dataset by name.

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
    dataset = _own(name, image_size, callbacks, columns or TableColumns(), cache)
    tell_sites(dataset, callbacks)
    return dataset


def _own(
    name: str, image_size: int, callbacks: Callbacks, columns: TableColumns, cache: bool
) -> Dataset:
    """Data of a user."""
    if name.startswith(OWN_PREFIXES):
        prefix, _, place = name.partition(":")
        if not place:
            raise CadisError(f"Name the place of your data, as in {prefix}:FOLDER.")
        if name.startswith(TABLES):
            return load_table(name, at_home(place), columns, callbacks)
        return load_images(at_home(place), image_size, picture_cache(cache), callbacks)
    if _is_code(name):
        return load_user_data(name, callbacks)
    raise CadisError(f"There is no dataset '{name}'; there are: {', '.join(DATASETS)}.")


def _is_code(name: str) -> bool:
    """Whether it names a user's function: in a file, or in a module of a package."""
    place, colon, _ = name.rpartition(":")
    return bool(colon) and "." in place and not name.startswith(OWN_PREFIXES)


def _published(
    name: str, data_dir: Path | str | None, offline: bool, callbacks: Callbacks
) -> Dataset:
    published, places = CATALOGUE[name], roots(at_home(data_dir) if data_dir else None)
    found = find(published, places)
    if found is None:
        if offline:
            where = (
                missing_files(published, places) or f"it is not in {', '.join(map(str, places))}"
            )
            raise CadisError(
                f"{name} is missing: {where}; fetch it without --offline, or name the folder that "
                "has its files by --data-dir."
            )
        fetch(published, places[0], callbacks)
        found = find(published, places[:1])
        assert found is not None
    return load_published(published, found)

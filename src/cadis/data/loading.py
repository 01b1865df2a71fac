"""Loading datasets by name: the built-in digits, published datasets, and users' own data."""

from collections.abc import Mapping
from pathlib import Path

from cadis._io import NO_CALLBACKS, Callbacks, check_path, expand_home, format_value
from cadis.data.digits import digits
from cadis.data.images import load_images
from cadis.data.published import (
    CATALOGUE,
    describe_missing_files,
    fetch,
    find_dataset,
    get_image_cache_folder,
    list_data_folders,
    load_published,
)
from cadis.data.samples import Dataset
from cadis.data.tables import TableColumns, load_table
from cadis.data.user_data import load_user_data
from cadis.errors import CadisError

DATASETS = ("digits", *CATALOGUE, "images:FOLDER", "csv:PATH", "parquet:PATH", "FILE.py:FUNCTION")
"""Names of datasets; words in capitals stand for the user's paths and names."""

TABLE_PREFIXES = ("csv:", "parquet:")
USER_DATA_PREFIXES = ("images:", *TABLE_PREFIXES)
"""Prefixes of dataset names that are followed by the path of a user's files."""

_MAX_CLIENTS_LISTED = 10
_LARGE_INPUT = 1000.0
_FEW_SAMPLES = 30
"""Number of test samples below which accuracy is imprecise."""


def is_dataset_name(name: str) -> bool:
    """Return whether a name has the form of one of :data:`DATASETS`."""
    return (
        name in ("digits", *CATALOGUE)
        or name.startswith(USER_DATA_PREFIXES)
        or is_user_function(name)
    )


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
        name: one of :data:`DATASETS`, with the path of your images or tables, or the file and
            name of your function.
        data_dir: folder of datasets that is searched first, and to which files are downloaded.
        offline: whether downloads are forbidden.
        image_size: width and height in pixels to which images of ``images:`` are resized.
        callbacks: called with the progress and with warnings.
        columns: titles of the table columns with clients, labels and categories.
        cache: whether decoded images are kept in the user's cache.

    Example:
        >>> from cadis.data import load
        >>> dataset = load("digits")
        >>> len(dataset.train), len(dataset.test)
        (1437, 360)
    """
    if not isinstance(name, str):
        raise CadisError(f"The name of a dataset should be a string, not {format_value(name)}.")
    if data_dir not in (None, ""):
        data_dir = check_path("data_dir", data_dir)
    if name == "digits":
        return digits()
    if name in CATALOGUE:
        return _load_published(name, data_dir, offline, callbacks)
    prefix, _, path = name.partition(":")
    if name.startswith(USER_DATA_PREFIXES) and not path:
        raise CadisError(f"Give the path of your data after {prefix}:, as in {prefix}:FOLDER.")
    if name.startswith(TABLE_PREFIXES):
        dataset = load_table(name, expand_home(path), columns or TableColumns(), callbacks)
    elif name.startswith(USER_DATA_PREFIXES):
        cache_folder = get_image_cache_folder() if cache else None
        dataset = load_images(expand_home(path), image_size, cache_folder, callbacks)
    elif is_user_function(name):
        dataset = load_user_data(name, callbacks)
    else:
        raise CadisError(f"There is no dataset '{name}'; choose one of: {', '.join(DATASETS)}.")
    report_sizes(dataset, callbacks)
    return dataset


def is_user_function(name: str) -> bool:
    """Return whether a name refers to a function in a file, or in a module of a package."""
    source, colon, _ = name.rpartition(":")
    return bool(colon) and "." in source and not name.startswith(USER_DATA_PREFIXES)


def _load_published(
    name: str, data_dir: Path | str | None, offline: bool, callbacks: Callbacks
) -> Dataset:
    dataset = CATALOGUE[name]
    folders = list_data_folders(expand_home(data_dir) if data_dir else None)
    files = find_dataset(dataset, folders)
    if files is None:
        if offline:
            problem = describe_missing_files(dataset, folders)
            problem = problem or f"it is not in {', '.join(map(str, folders))}"
            raise CadisError(
                f"{name} is missing: {problem}; download it without --offline, or name the folder "
                "of its files with --data-dir."
            )
        fetch(dataset, folders[0], callbacks)
        files = find_dataset(dataset, folders[:1])
        assert files is not None
    return load_published(dataset, files)


def report_sizes(dataset: Dataset, callbacks: Callbacks) -> None:
    """Report the number of samples per client, and warn about small test sets and large inputs."""
    if len(dataset.test) < _FEW_SAMPLES:
        step = f"{1 / len(dataset.test):.2g}"
        callbacks.say(
            f"The test set has {len(dataset.test)} samples: accuracy changes in steps of {step}."
        )
    if dataset.train.inputs.is_floating_point():
        lowest, highest = dataset.train.inputs.aminmax()  # abs() would copy all inputs
        largest = max(-float(lowest), float(highest))
        if _LARGE_INPUT < largest < float("inf"):
            callbacks.say(
                f"The largest input is {largest:,.0f}, so training may diverge; scale inputs to "
                "around 1."
            )
    if dataset.client_indices:
        train_sizes = {client: len(part) for client, part in dataset.client_indices.items()}
        test_sizes = {client: len(part) for client, part in dataset.client_test_indices.items()}
        test_sizes |= {client: len(part) for client, part in dataset.client_tests.items()}
        _report_client_sizes(train_sizes, test_sizes, callbacks)


def _report_client_sizes(
    train_sizes: Mapping[str, int], test_sizes: Mapping[str, int], callbacks: Callbacks
) -> None:
    sizes = {client: (size, test_sizes.get(client, 0)) for client, size in train_sizes.items()}
    callbacks.say(_format_client_sizes(sizes, has_tests=bool(test_sizes)))
    if only_tested := [client for client in test_sizes if client not in train_sizes]:
        callbacks.say(
            f"{_format_subject(only_tested)} only test samples and no training samples; add some "
            "if this is not intended."
        )
    untested = [client for client, (_, test) in sizes.items() if not test]
    if test_sizes and untested:
        callbacks.say(
            f"{_format_subject(untested)} no test samples, so no accuracy is computed for them."
        )
    few = {client: test for client, (_, test) in sizes.items() if 0 < test < _FEW_SAMPLES}
    if few:
        client = min(few, key=lambda name: few[name])
        callbacks.say(
            f"{len(few)} of {len(sizes)} clients have fewer than {_FEW_SAMPLES} test samples; "
            f"{client} has {few[client]}, so its accuracy changes in steps of "
            f"{1 / few[client]:.2g}."
        )


def _format_client_sizes(sizes: Mapping[str, tuple[int, int]], has_tests: bool) -> str:
    """Return a sentence with the number of training and test samples of each client."""
    if len(sizes) > _MAX_CLIENTS_LISTED:
        train, test = zip(*sizes.values(), strict=True)
        tests = f", and {min(test):,} to {max(test):,} test samples" if has_tests else ""
        return (
            f"{len(sizes)} clients have {min(train):,} to {max(train):,} training samples{tests}."
        )
    texts = [
        f"{client} {train:,}{f' + {test:,}' if has_tests else ''}"
        for client, (train, test) in sizes.items()
    ]
    return f"Training{' + test' if has_tests else ''} samples: {', '.join(texts)}."


def _format_subject(names: list[str]) -> str:
    """Return the beginning of a sentence: the names of the first clients, and "has" or "have"."""
    text = ", ".join(names[:_MAX_CLIENTS_LISTED])
    more = len(names) - _MAX_CLIENTS_LISTED
    rest = f" and {more} more" if more > 0 else ""
    return f"{text}{rest} {'has' if len(names) == 1 else 'have'}"

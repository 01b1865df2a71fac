"""Datasets by name: the embedded digits, published ones, and folders of pictures."""

from pathlib import Path

from cadis.core import CadisError
from cadis.data.callbacks import NO_CALLBACKS, Callbacks
from cadis.data.catalogue import CATALOGUE
from cadis.data.digits import digits
from cadis.data.download import fetch
from cadis.data.examples import Dataset
from cadis.data.images import load_images
from cadis.data.library import cache_folder, find, load_published, missing_files, roots
from cadis.data.user_files import at_home

DATASETS = ("digits", *CATALOGUE, "images:FOLDER")
"""Names of datasets, as a user types them."""


def load(
    name: str,
    data_dir: Path | str | None = None,
    offline: bool = False,
    image_size: int = 224,
    callbacks: Callbacks = NO_CALLBACKS,
) -> Dataset:
    """A dataset by name.

    Args:
        name: one of :data:`DATASETS`, or ``images:`` and a folder of pictures.
        data_dir: where to look for files first, and where to download them to.
        offline: never download.
        image_size: to which pictures of ``images:`` are resized.
        callbacks: called as it goes on.
    """
    if name == "digits":
        return digits()
    if name.startswith("images:"):
        if name == "images:":
            raise CadisError("Name the folder of your pictures, as in images:FOLDER.")
        folder = at_home(name.removeprefix("images:"))
        return load_images(folder, image_size, cache_folder() / "pictures", callbacks)
    if name not in CATALOGUE:
        raise CadisError(f"There is no dataset '{name}'; there are: {', '.join(DATASETS)}.")
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

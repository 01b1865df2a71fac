"""Datasets as tensors."""

from cadis.data.callbacks import NO_CALLBACKS, Callbacks
from cadis.data.catalogue import CATALOGUE
from cadis.data.conversion import as_examples, single
from cadis.data.digits import digits
from cadis.data.download import fetch
from cadis.data.examples import Dataset, Examples, Scaling, Subsets, joined
from cadis.data.library import Found, find, missing_files, problems, roots
from cadis.data.loading import DATASETS, is_dataset_name, load
from cadis.data.own import load_own
from cadis.data.preprocessing import PicturePreprocessing, Preprocessing, TablePreprocessing
from cadis.data.tables import TableColumns
from cadis.data.user_data import as_dataset, by_name

__all__ = [
    "CATALOGUE",
    "DATASETS",
    "NO_CALLBACKS",
    "Callbacks",
    "Dataset",
    "Examples",
    "Found",
    "PicturePreprocessing",
    "Preprocessing",
    "Scaling",
    "Subsets",
    "TableColumns",
    "TablePreprocessing",
    "as_dataset",
    "as_examples",
    "by_name",
    "digits",
    "fetch",
    "find",
    "is_dataset_name",
    "joined",
    "load",
    "load_own",
    "missing_files",
    "problems",
    "roots",
    "single",
]

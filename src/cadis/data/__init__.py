"""Datasets as tensors."""

from cadis.data.callbacks import NO_CALLBACKS, Callbacks
from cadis.data.catalogue import CATALOGUE
from cadis.data.digits import digits
from cadis.data.download import fetch
from cadis.data.examples import Dataset, Examples, Scaling, Subsets, as_examples, joined
from cadis.data.library import Found, find, missing_files, problems, roots
from cadis.data.loading import DATASETS, load
from cadis.data.own import load_own
from cadis.data.preprocessing import PicturePreprocessing, Preprocessing, TablePreprocessing

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
    "TablePreprocessing",
    "as_examples",
    "digits",
    "fetch",
    "find",
    "joined",
    "load",
    "load_own",
    "missing_files",
    "problems",
    "roots",
]

"""Datasets as tensors."""

from cadis.data.conversion import as_examples, single
from cadis.data.dicom import PictureError
from cadis.data.digits import digits
from cadis.data.examples import Dataset, Examples, Scaling, Subsets, broken_sentence, joined
from cadis.data.image_folder import find_pictures
from cadis.data.loading import DATASETS, OWN_PREFIXES, TABLES, is_dataset_name, load
from cadis.data.picture import read_picture
from cadis.data.picture_cache import cache_entries, cache_limit, clear
from cadis.data.preprocessing import (
    CategoryColumn,
    NumberColumn,
    PicturePreprocessing,
    Preprocessing,
    TablePreprocessing,
    from_json,
    to_json,
)
from cadis.data.site_data import load_own
from cadis.data.table_files import TABLE_SUFFIXES, read_table
from cadis.data.tables import TableColumns
from cadis.data.user_data import as_dataset, by_name

__all__ = [
    "DATASETS",
    "OWN_PREFIXES",
    "TABLES",
    "TABLE_SUFFIXES",
    "CategoryColumn",
    "Dataset",
    "Examples",
    "NumberColumn",
    "PictureError",
    "PicturePreprocessing",
    "Preprocessing",
    "Scaling",
    "Subsets",
    "TableColumns",
    "TablePreprocessing",
    "as_dataset",
    "as_examples",
    "broken_sentence",
    "by_name",
    "cache_entries",
    "cache_limit",
    "clear",
    "digits",
    "find_pictures",
    "from_json",
    "is_dataset_name",
    "joined",
    "load",
    "load_own",
    "read_picture",
    "read_table",
    "single",
    "to_json",
]

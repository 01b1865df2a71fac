"""Datasets: loading, conversion to tensors, preprocessing and partitions."""

from cadis.data.conversion import as_samples, to_float32
from cadis.data.dicom import ImageError
from cadis.data.digits import digits
from cadis.data.image_cache import clear_image_cache, get_cache_limit, list_cache_entries
from cadis.data.image_folder import find_images
from cadis.data.image_reading import read_image
from cadis.data.loading import (
    DATASETS,
    TABLE_PREFIXES,
    USER_DATA_PREFIXES,
    is_dataset_name,
    is_user_function,
    load,
)
from cadis.data.preprocessing import (
    MAX_DEVIATIONS,
    CategoryColumn,
    ImagePreprocessing,
    NumberColumn,
    Preprocessing,
    TablePreprocessing,
    from_json,
    to_json,
)
from cadis.data.samples import (
    Dataset,
    Samples,
    Scaling,
    Subsets,
    concatenate,
    format_nonfinite_error,
)
from cadis.data.site_data import load_site_data
from cadis.data.table_files import TABLE_SUFFIXES, read_table
from cadis.data.tables import TableColumns
from cadis.data.user_data import as_dataset, to_samples_by_client

__all__ = [
    "DATASETS",
    "TABLE_PREFIXES",
    "TABLE_SUFFIXES",
    "USER_DATA_PREFIXES",
    "CategoryColumn",
    "Dataset",
    "ImageError",
    "ImagePreprocessing",
    "NumberColumn",
    "Preprocessing",
    "Samples",
    "Scaling",
    "Subsets",
    "TableColumns",
    "TablePreprocessing",
    "as_dataset",
    "as_samples",
    "clear_image_cache",
    "concatenate",
    "digits",
    "find_images",
    "format_nonfinite_error",
    "from_json",
    "get_cache_limit",
    "is_dataset_name",
    "is_user_function",
    "list_cache_entries",
    "load",
    "load_site_data",
    "read_image",
    "read_table",
    "to_float32",
    "to_json",
    "to_samples_by_client",
]

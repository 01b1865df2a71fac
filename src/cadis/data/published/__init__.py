"""Published datasets: their files, and how to find, download and read them."""

from cadis.data.published.catalogue import CATALOGUE
from cadis.data.published.download import fetch
from cadis.data.published.formats import (
    FileFormat,
    PublishedDataset,
    make_cifar_binary_reader,
    make_idx_format,
)
from cadis.data.published.published_files import (
    describe_missing_files,
    find_dataset,
    find_problems,
    get_cache_folder,
    get_image_cache_folder,
    list_data_folders,
    load_published,
)

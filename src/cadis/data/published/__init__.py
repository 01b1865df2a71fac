"""Published datasets: what their files are, where to find, fetch and read them."""

from cadis.data.published.catalogue import CATALOGUE
from cadis.data.published.download import fetch
from cadis.data.published.formats import Form, Published, cifar_binary, idx_form
from cadis.data.published.published_files import (
    cache_folder,
    find,
    load_published,
    missing_files,
    picture_cache,
    problems,
    roots,
)

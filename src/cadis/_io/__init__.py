"""Helpers without federated learning: files, user code, sorting, chunked tensor operations."""

from cadis._io.callbacks import NO_CALLBACKS, Callbacks
from cadis._io.chunked import all_finite, fresh, in_chunks, mean_into, spread, squared_distance
from cadis._io.files import (
    at_home,
    is_file,
    is_folder,
    is_full,
    object_text,
    parse_toml,
    read_object,
    read_toml,
    shown,
    to_toml,
    unwritable,
)
from cadis._io.text import natural, short_repr
from cadis._io.user_code import is_user_code, load_user_code, one_line

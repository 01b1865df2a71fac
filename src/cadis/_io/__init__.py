"""Helpers that do not depend on federated learning: files, user code, text, chunked tensor math."""

from cadis._io.callbacks import NO_CALLBACKS, Callbacks
from cadis._io.chunked import (
    all_finite,
    allocate_vector,
    compute_squared_distance,
    estimate_squared_distance,
    map_chunks,
    scatter_rows,
    write_mean,
)
from cadis._io.files import (
    expand_home,
    format_json,
    is_disk_full,
    is_file,
    is_folder,
    make_write_error,
    parse_toml,
    read_json_object,
    read_toml,
    to_printable,
    to_toml,
)
from cadis._io.text import natural_key, short_repr
from cadis._io.user_code import format_error, is_user_code, load_user_code

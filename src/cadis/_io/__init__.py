"""Helpers that do not depend on federated learning: files, user code, text, chunked tensor math."""

from cadis._io.arguments import (
    check_flag,
    check_folder,
    check_function,
    check_list,
    check_num_runs,
    check_path,
    check_targets,
    check_text,
    format_value,
)
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
from cadis._io.memory import check_file_size, check_memory, take_at_most
from cadis._io.outside_text import escape_controls, format_csv, from_csv_cell
from cadis._io.safe_files import (
    check_output,
    check_single_name,
    get_draft_path,
    has_name,
    make_private_folder,
    open_for_append,
    open_regular,
    read_regular,
    replace_file,
    replace_text,
    sync_file,
    write_draft,
)
from cadis._io.text import natural_key, short_repr
from cadis._io.user_code import format_error, is_user_code, load_user_code, locate_user_code

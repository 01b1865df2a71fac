"""``cadis data``: list, download and verify datasets, and show the image cache."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from cadis.algorithm import check_names
from cadis.data import clear_image_cache, get_cache_limit, list_cache_entries
from cadis.data.published import (
    CATALOGUE,
    describe_missing_files,
    fetch,
    find_dataset,
    find_problems,
    get_cache_folder,
    list_data_folders,
)
from cadis.report.console import SafeConsole
from cadis.report.terminal import print_line, show_loading
from cadis.report.terminal_table import make_terminal_table


def list_datasets(data_dir: Path | None = None) -> int:
    """List all datasets, with their folder if they are downloaded."""
    folders = list_data_folders(data_dir)
    rows = [("digits", "10", "comes with scikit-learn", "")]
    for name, published in CATALOGUE.items():
        dataset = find_dataset(published, folders)
        if dataset is None:
            missing = describe_missing_files(published, folders) or "not downloaded"
            folder, size = f"[yellow]{escape(missing)}[/yellow]", ""
        else:
            folder, size = escape(str(dataset.folder)), f"{dataset.size / 1e6:,.0f}"
        rows.append((name, str(len(published.classes)), folder, size))
    rows += [
        ("images:FOLDER", "", "your own images", ""),
        ("csv:PATH", "", "your own tables; parquet:PATH for Parquet", ""),
        ("FILE.py:FUNCTION", "", "your own data, returned by a function", ""),
    ]
    console, columns = SafeConsole(), ("name", "classes", "folder", "MB")
    console.print(make_terminal_table("Datasets", columns, rows, words=columns[:3]))
    print_line(console, f"Folders searched: {', '.join(map(str, folders))}")
    console.print("Datasets are downloaded when a run needs them, or with: cadis data fetch NAME")
    return 0


def fetch_datasets(names: Sequence[str], data_dir: Path | None = None) -> int:
    """Download datasets that are missing or damaged."""
    check_names("dataset to fetch", names, CATALOGUE)
    console, folders = SafeConsole(), list_data_folders(data_dir)
    for name in names:
        dataset = find_dataset(CATALOGUE[name], folders)
        if dataset is not None and not any(find_problems(dataset)):
            print_line(console, f"{name} is already in {dataset.folder}.")
            continue
        with show_loading(console) as callbacks:
            folder = fetch(CATALOGUE[name], folders[0], callbacks)
        print_line(console, f"Downloaded {name} to {folder}.")
    return 0


def show_cache(clear: bool) -> int:
    """List the cached images, or delete them."""
    folder, console = get_cache_folder() / "pictures", SafeConsole()
    if clear:
        deleted, remaining = clear_image_cache(folder)
        size = f"{sum(entry.size for entry in deleted) / 1e6:,.1f} MB"
        rest = f"; {len(remaining)} folders are in use or cannot be deleted" if remaining else ""
        print_line(console, f"Deleted {size} of decoded images from {folder}{rest}.")
        return 1 if remaining else 0
    entries = list_cache_entries(folder)
    table = Table(title="Cache of decoded images", title_justify="left")
    for column in ("folder", "images", "side", "MB", "last used"):
        table.add_column(column, overflow="fold", justify="left" if column == "folder" else "right")
    for entry in entries:
        numbers = ("?" if n is None else f"{n:,}" for n in (entry.num_images, entry.side))
        used = datetime.fromtimestamp(entry.used).strftime("%Y-%m-%d %H:%M")
        source = escape(entry.source or entry.path.name)
        table.add_row(source, *numbers, f"{entry.size / 1e6:,.1f}", used)
    if entries:
        console.print(table)
    total = f"{sum(entry.size for entry in entries) / 1e6:,.1f} MB"
    limit = f"at most {get_cache_limit() / 1e9:g} GB (CADIS_CACHE_GB)"
    print_line(console, f"The cache {folder} has {total}; it grows to {limit}.")
    console.print("Delete it: cadis data cache --clear    Run without it: cadis run --no-cache")
    return 0


def verify_datasets(names: Sequence[str], data_dir: Path | None = None) -> int:
    """Compare files with their published checksums; return 1 if a file is wrong or missing."""
    check_names("dataset to verify", names, CATALOGUE)
    console, folders, wrong = SafeConsole(), list_data_folders(data_dir), 0
    for name in names or CATALOGUE:
        dataset = find_dataset(CATALOGUE[name], folders)
        if dataset is None:
            missing = describe_missing_files(CATALOGUE[name], folders)
            wrong += bool(names or missing)  # a dataset that was not named may be absent
            problem = missing or "not downloaded"
            print_line(console, f"{name}: {problem}; download it with: cadis data fetch {name}")
            continue
        sentences = list(find_problems(dataset))
        wrong += len(sentences)
        success = f"all {len(dataset.paths)} files in {dataset.folder} match their checksums."
        for sentence in sentences or [success]:
            print_line(console, f"{name}: {sentence}")
    return 1 if wrong else 0

"""``cadis data``: which datasets are there, fetching and checking them."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cadis.algorithm import check_names
from cadis.data import cache_entries, cache_limit
from cadis.data import clear as clear_cache
from cadis.data.published import (
    CATALOGUE,
    cache_folder,
    fetch,
    find,
    missing_files,
    problems,
    roots,
)
from cadis.report.terminal import loading, tell
from cadis.report.terminal_table import fitting_table


def list_datasets(data_dir: Path | None = None) -> int:
    """What is there and what is missing."""
    places = roots(data_dir)
    rows = [("digits", "10", "comes with scikit-learn", "")]
    for name, published in CATALOGUE.items():
        found = find(published, places)
        if found is None:
            lack = missing_files(published, places) or "missing"
            where, size = f"[yellow]{escape(lack)}[/yellow]", ""
        else:
            where, size = escape(str(found.folder)), f"{found.size / 1e6:,.0f}"
        rows.append((name, str(len(published.classes)), where, size))
    rows += [
        ("images:FOLDER", "", "pictures of your own", ""),
        ("csv:PLACE", "", "tables of your own, Parquet by parquet:PLACE", ""),
        ("FILE.py:FUNCTION", "", "what a function of your own returns", ""),
    ]
    console, columns = Console(), ("name", "classes", "where", "MB")
    console.print(fitting_table("Datasets", columns, rows, words=columns[:3]))
    tell(console, f"Searched: {', '.join(map(str, places))}.")
    console.print("Missing ones are downloaded when needed, or by: cadis data fetch NAME")
    return 0


def fetch_datasets(names: Sequence[str], data_dir: Path | None = None) -> int:
    """Download what is missing or damaged."""
    check_names("dataset to fetch", names, CATALOGUE)
    console, places = Console(), roots(data_dir)
    for name in names:
        found = find(CATALOGUE[name], places)
        if found is not None and not any(problems(found)):
            tell(console, f"{name} is already in {found.folder}.")
            continue
        with loading(console) as callbacks:
            folder = fetch(CATALOGUE[name], places[0], callbacks)
        tell(console, f"{name} is now in {folder}.")
    return 0


def show_cache(clear: bool) -> int:
    """List what is kept of users' pictures, or remove it."""
    folder, console = cache_folder() / "pictures", Console()
    if clear:
        gone, kept = clear_cache(folder)
        told = f"Removed {sum(e.size for e in gone) / 1e6:,.1f} MB of decoded pictures"
        left = f"; {len(kept)} more are in use or cannot be removed" if kept else ""
        tell(console, f"{told} from {folder}{left}.")
        return 1 if kept else 0
    entries = cache_entries(folder)
    table = Table(title="Decoded pictures", title_justify="left")
    for column in ("from", "pictures", "side", "MB", "last used"):
        table.add_column(column, overflow="fold", justify="left" if column == "from" else "right")
    for entry in entries:
        numbers = ("?" if n is None else f"{n:,}" for n in (entry.pictures, entry.side))
        used = datetime.fromtimestamp(entry.used).strftime("%Y-%m-%d %H:%M")
        source = escape(entry.source or entry.path.name)
        table.add_row(source, *numbers, f"{entry.size / 1e6:,.1f}", used)
    if entries:
        console.print(table)
    total = f"{sum(entry.size for entry in entries) / 1e6:,.1f} MB"
    limit = f"at most {cache_limit() / 1e9:g} GB (CADIS_CACHE_GB)"
    tell(console, f"{folder} has {total}, {limit}.")
    console.print("Remove it by: cadis data cache --clear    Keep nothing by: --no-cache")
    return 0


def verify_datasets(names: Sequence[str], data_dir: Path | None = None) -> int:
    """Compare what is there with what was published; 1 if anything is wrong."""
    check_names("dataset to verify", names, CATALOGUE)
    console, places, wrong = Console(), roots(data_dir), 0
    for name in names or CATALOGUE:
        found = find(CATALOGUE[name], places)
        if found is None:
            lacking = missing_files(CATALOGUE[name], places)
            wrong += bool(names or lacking)  # one that nobody has asked for need not be there
            lack = lacking or "missing"
            tell(console, f"{name}: {lack}; fetch it by: cadis data fetch {name}")
            continue
        sentences = list(problems(found))
        wrong += len(sentences)
        good = f"all {len(found.paths)} files in {found.folder} are as published."
        for sentence in sentences or [good]:
            tell(console, f"{name}: {sentence}")
    return 1 if wrong else 0

"""Going on with a run: from its last round that is whole, and with what it was begun with."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from cadis._io import parse_toml, to_toml
from cadis.algorithm import KINDS
from cadis.algorithm.methods import label_of
from cadis.data import OWN_PREFIXES
from cadis.errors import CadisError
from cadis.options import MAY_CHANGE
from cadis.server import RunState
from cadis.store.checkpoint import Manifest
from cadis.store.folder import RunFolder
from cadis.store.history import check_history, read_records
from cadis.store.storage import DamagedError, digest_of, read_file

Say: TypeAlias = Callable[[str], None]

BEST = "best.safetensors"

_NAMED = (*(key for key, kind in KINDS.items() if not kind.many), "dataset", "model")
"""Options that are chosen by a single name, the most important first."""

_ADVICE = "resume it as it was begun, or start a new run in another folder."


def restore(folder: RunFolder, start: RunState, say: Say) -> tuple[RunState, Manifest, bool]:
    """Return the last round that is whole, its manifest, and whether a later one is damaged.

    Args:
        folder: where the run is.
        start: the state before the first round.
        say: called with a sentence about each round that is damaged.
    """
    problems: list[str] = []
    for path in folder.checkpoint.manifests():
        try:
            state, manifest = _restore_round(folder, path, start)
        except DamagedError as error:
            problems.append(str(error))
            continue
        for problem in problems:
            say(f"{problem} Going on from round {state.round}.")
        return state, manifest, bool(problems)
    if problems:
        raise DamagedError(
            f"{problems[0]} Nor is any other round of the run in {folder.path} whole; put back a "
            "copy of the file, or start a new run."
        )
    raise DamagedError(
        f"The checkpoint of the run in {folder.path} is gone; put back a copy of it, or start a "
        "new run."
    )


def _restore_round(folder: RunFolder, path: Path, start: RunState) -> tuple[RunState, Manifest]:
    manifest, history = folder.checkpoint.read(path), folder.history_path
    content = read_file(history) if manifest.round else b""
    check_history(content, manifest.history, history)
    if len(read_records(content[: manifest.history.size], history)) != manifest.round:
        raise DamagedError(f"{history} has another number of rounds than {path}.")
    if manifest.state is None:
        return replace(start, run=manifest.run, members=manifest.members), manifest
    return folder.checkpoint.load(manifest), manifest


def tidy_up(folder: RunFolder, manifest: Manifest, later_damaged: bool, say: Say) -> Manifest:
    """Put in place what was about to be, and drop what a kill has left.

    Returns:
        The manifest, of files that are what it says.
    """
    best, digest = folder.path / BEST, manifest.files.get(BEST)
    folder.publish_late(manifest)
    folder.sweep()
    if digest and not best.exists():
        say(f"{best} is missing; it is written again when a round is better than all.")
    if later_damaged and digest and best.exists() and digest_of(read_file(best)) != digest:
        # It is that of the damaged round, which comes again.
        others = {name: other for name, other in manifest.files.items() if name != BEST}
        return replace(manifest, files=others)
    if folder.history_size() == manifest.history.size:  # no later round has begun
        check_best(best, manifest)
    return manifest


def check_best(path: Path, manifest: Manifest) -> None:
    """Refuse a best model that is not the one that was written."""
    digest = manifest.files.get(path.name)
    if digest and path.exists() and digest_of(read_file(path)) != digest:
        raise DamagedError(
            f"{path} is damaged: it is not what was written. Put back a copy, or delete it to go "
            "on without it."
        )


def check_options(place: Path, config: str, options: Mapping[str, Any]) -> None:
    """Refuse options that are not those of the run's ``config.toml``, but for what may change."""
    before, given = (
        _flat(parse_toml(text, place / "config.toml")) for text in (config, to_toml(options))
    )
    for key in [*before, *(key for key in given if key not in before)]:
        was, now = before.get(key), given.get(key)
        if key not in MAY_CHANGE and _differ(key, was, now):
            raise CadisError(_difference(place, key, was, now))


def check_named(place: Path, before: Mapping[str, Any], typed: Mapping[str, Any]) -> None:
    """Refuse another method, dataset and so on, before anything is made of it.

    Args:
        place: where the run is.
        before: the options that it has.
        typed: options that a user gives besides.
    """
    for key in _NAMED:
        was, now = before.get(key), typed.get(key)
        if was is None or now in (None, "auto") or ".py" in str(now):  # settled later
            continue
        if _differ(key, was, now):
            raise CadisError(_difference(place, key, was, now))


def _flat(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options side by side, names of parts first; those of a table under ``table.name``."""
    flat = {key: value for key, value in options.items() if not isinstance(value, Mapping)}
    for table, values in options.items():
        if isinstance(values, Mapping):
            flat |= {f"{table}.{name}": value for name, value in values.items()}
    return flat


def _differ(key: str, was: object, now: object) -> bool:
    """Whether two values of an option are not the same; a user's own files may have moved."""
    if key == "dataset" and all(str(value).startswith(OWN_PREFIXES) for value in (was, now)):
        return False
    if key in _NAMED and isinstance(was, str) and isinstance(now, str):
        return was.lower() != now.lower()
    return was != now


def _difference(place: Path, key: str, was: object, now: object) -> str:
    """A sentence about an option that is not what the run was begun with."""
    if key not in (*_NAMED, "transforms"):
        return f"The run in {place} has {key} = {was}, not {now}; {_ADVICE}"
    noun = KINDS[key].noun if key in KINDS else key
    before, asked = (_named(noun, key, value) for value in (was, now))
    return f"The run in {place} was begun with {before}, and you ask for {asked}; {_ADVICE}"


def _named(noun: str, key: str, value: object) -> str:
    if isinstance(value, list | tuple):  # of transforms there may be any number
        return f"the {noun}s {', '.join(map(str, value))}" if value else f"no {noun}s"
    return f"the {noun} {label_of(str(value)) if key == 'method' else value}"

"""Resuming a run from its last complete round, with the options that it was started with.

:class:`~cadis.store.RunWriter` uses this module; ``cadis run`` checks options before it loads data.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from cadis._io import has_name, parse_toml, to_toml
from cadis.algorithm import KINDS
from cadis.algorithm.methods import get_method_label
from cadis.data import USER_DATA_PREFIXES
from cadis.errors import CadisError
from cadis.options import CHANGEABLE_OPTIONS
from cadis.server import RunState
from cadis.store.checkpoint import Manifest
from cadis.store.folder import RunFolder
from cadis.store.history import check_history, parse_records
from cadis.store.storage import DamagedError, compute_digest, read_file

Say: TypeAlias = Callable[[str], None]

BEST_MODEL_FILE = "best.safetensors"

_NAME_OPTIONS = (*(k for k, kind in KINDS.items() if not kind.allows_several), "dataset", "model")
"""Options whose value is one name (method, sampler, ...), the most important first."""

_ADVICE = "resume it with the same options, or start a new run in another folder."


def restore(folder: RunFolder, start: RunState, say: Say) -> tuple[RunState, Manifest, bool]:
    """Return the state after the last complete round.

    Args:
        folder: folder of the run.
        start: state before the first round.
        say: called with a message about each damaged round.

    Returns:
        The state, its manifest, and whether a later round is damaged.
    """
    problems: list[str] = []
    for path in folder.checkpoint.list_manifests():
        try:
            state, manifest = _restore_round(folder, path, start)
        except DamagedError as error:
            problems.append(str(error))
            continue
        for problem in problems:
            say(f"{problem} Resuming from round {state.round}.")
        return state, manifest, bool(problems)
    if problems:
        raise DamagedError(
            f"{problems[0]} No other round of the run in {folder.path} is complete; restore a copy "
            "of the file, or start a new run."
        )
    raise DamagedError(
        f"The checkpoint of the run in {folder.path} is missing; restore a copy of it, or start a "
        "new run."
    )


def _restore_round(folder: RunFolder, path: Path, start: RunState) -> tuple[RunState, Manifest]:
    manifest, history = folder.checkpoint.read(path), folder.history_path
    if manifest.lacks_state:
        raise CadisError(
            f"The run in {folder.path} is finished, and with --no-profiles its state was not kept, "
            "so it cannot be resumed; start a new run."
        )
    content = read_file(history) if manifest.round else b""
    check_history(content, manifest.history, history)
    if len(parse_records(content[: manifest.history.size], history)) != manifest.round:
        raise DamagedError(f"{history} and {path} have different numbers of rounds.")
    if manifest.state is None:
        return replace(start, run=manifest.run, members=manifest.members), manifest
    return folder.checkpoint.load(manifest), manifest


def clean_up(
    folder: RunFolder, manifest: Manifest, has_damaged_later_round: bool, say: Say
) -> Manifest:
    """Rename or delete the drafts that a killed process left behind, and check the best model.

    Drafts whose digests are in the manifest get their final names; all others are deleted.

    Args:
        folder: folder of the run.
        manifest: manifest of the round to resume from.
        has_damaged_later_round: whether a later round is damaged.
        say: called with a message if the best model is missing.

    Returns:
        The manifest, without the best model if that is from the damaged round.
    """
    best, digest = folder.path / BEST_MODEL_FILE, manifest.files.get(BEST_MODEL_FILE)
    folder.publish_pending(manifest)
    folder.delete_drafts()
    if digest and not has_name(best):
        say(f"{best} is missing; it will be written again after a round that is the best so far.")
    is_changed = digest and has_name(best) and compute_digest(read_file(best)) != digest
    if has_damaged_later_round and is_changed:
        # The file is from the damaged round, which runs again.
        other_files = {n: value for n, value in manifest.files.items() if n != BEST_MODEL_FILE}
        return replace(manifest, files=other_files)
    if folder.get_history_size() == manifest.history.size:  # no later round was written
        check_best_model(best, manifest)
    return manifest


def check_best_model(path: Path, manifest: Manifest) -> None:
    """Raise an error if the file of the best model has changed since it was written."""
    digest = manifest.files.get(path.name)
    if digest and has_name(path) and compute_digest(read_file(path)) != digest:
        raise DamagedError(
            f"{path} is damaged: its content has changed since it was written; restore a copy, or "
            "delete the file to resume without it."
        )


def check_options(folder: Path, config: str, options: Mapping[str, Any]) -> None:
    """Raise an error if options that must not change differ from the run's ``config.toml``.

    Args:
        folder: folder of the run.
        config: text of its ``config.toml``.
        options: options for resuming.
    """
    old_options, new_options = (
        _flatten(parse_toml(text, folder / "config.toml")) for text in (config, to_toml(options))
    )
    for key in [*old_options, *(key for key in new_options if key not in old_options)]:
        old, new = old_options.get(key), new_options.get(key)
        if key not in CHANGEABLE_OPTIONS and _differ(key, old, new):
            raise CadisError(_describe_difference(folder, key, old, new))


def check_same_parts(
    folder: Path, options: Mapping[str, Any], new_options: Mapping[str, Any]
) -> None:
    """Raise an error if the user names another method, dataset or model than the run has.

    Unlike :func:`check_options`, this check needs no data and no code of the user.

    Args:
        folder: folder of the run.
        options: options of the run.
        new_options: options that the user gives for resuming.
    """
    for key in _NAME_OPTIONS:
        old, new = options.get(key), new_options.get(key)
        if old is None or new in (None, "auto") or ".py" in str(new):  # check_options decides
            continue
        if _differ(key, old, new):
            raise CadisError(_describe_difference(folder, key, old, new))


def _flatten(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options without nested tables: plain options first, then ``table.name``."""
    flat = {key: value for key, value in options.items() if not isinstance(value, Mapping)}
    for table, values in options.items():
        if isinstance(values, Mapping):
            flat |= {f"{table}.{name}": value for name, value in values.items()}
    return flat


def _differ(key: str, old: object, new: object) -> bool:
    """Return whether two values of an option differ; the path of a user's data may change."""
    if key == "dataset" and all(str(value).startswith(USER_DATA_PREFIXES) for value in (old, new)):
        return False
    if key in _NAME_OPTIONS and isinstance(old, str) and isinstance(new, str):
        return old.lower() != new.lower()
    return old != new


def _describe_difference(folder: Path, key: str, old: object, new: object) -> str:
    """Return the error message for an option whose value differs from the run's value."""
    if key not in (*_NAME_OPTIONS, "transforms"):
        return f"The run in {folder} has {key} = {old}, not {new}; {_ADVICE}"
    noun = KINDS[key].noun if key in KINDS else key
    before, after = (_format_value(noun, key, value) for value in (old, new))
    return f"The run in {folder} was started with {before}, but you ask for {after}; {_ADVICE}"


def _format_value(noun: str, key: str, value: object) -> str:
    if isinstance(value, list | tuple):  # transforms
        return f"the {noun}s {', '.join(map(str, value))}" if value else f"no {noun}s"
    return f"the {noun} {get_method_label(str(value)) if key == 'method' else value}"

"""A run goes on with what it was begun with: what else is asked for is told in words."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cadis.algorithm import KINDS
from cadis.algorithm.methods import label_of
from cadis.data import OWN_PREFIXES
from cadis.errors import CadisError

_NAMED = (*(key for key, kind in KINDS.items() if not kind.many), "dataset", "model")
"""Options that are chosen by a single name, the most important first."""

_ADVICE = "resume it as it was begun, or start a new run in another folder."


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
        if differ(key, was, now):
            raise CadisError(difference(place, key, was, now))


def differ(key: str, was: object, now: object) -> bool:
    """Whether two values of an option are not the same; a user's own files may have moved."""
    if key == "dataset" and all(str(value).startswith(OWN_PREFIXES) for value in (was, now)):
        return False
    names = key in _NAMED and isinstance(was, str) and isinstance(now, str)
    return was.lower() != now.lower() if names else was != now  # type: ignore[attr-defined]


def difference(place: Path, key: str, was: object, now: object) -> str:
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

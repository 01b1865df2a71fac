"""Partitions that are given: by the data themselves, or by a file."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cadis._io import is_file, object_text, read_object, unwritable
from cadis.data.partition.protocol import Partition
from cadis.errors import CadisError
from cadis.types import ClientId


def given_by_data(owners: Mapping[str, Tensor], minimum: int) -> Partition:
    """Who owns what, as the data say."""
    if not owners:
        raise CadisError(
            "The data do not say which client owns what; choose another partition than 'clients', "
            "put pictures into <client>/<class>/<picture>, or name a table's --client-column."
        )
    for client, owned in owners.items():
        if len(owned) < minimum:
            raise CadisError(
                f"Client {client} has {len(owned)} samples, and {minimum} are the fewest; give it "
                "more, leave it out, or ask for fewer by --min-samples."
            )
    return Partition(tuple(owners.values()), client_ids=client_ids_of(list(owners)))


def read_partition(path: Path, num_examples: int, allow_overlap: bool, minimum: int) -> Partition:
    """Read ``{client: [training indices]}``, and the true clusters from a file beside it.

    The clusters of ``mc.json`` are in ``mc.clusters.json``, ``{client: cluster}``, if known.
    """
    content = read_object(path)
    owners: dict[int, str] = {}
    for client, indices in content.items():
        _check_indices(path, client, indices, num_examples, minimum)
        if not allow_overlap:
            _check_disjoint(path, client, indices, owners)
    return Partition(
        tuple(torch.tensor(indices, dtype=torch.int64) for indices in content.values()),
        _read_clusters(clusters_file(path), list(content)),
        client_ids_of(list(content)),
    )


def write_partition(path: Path, partition: Partition) -> list[Path]:
    """The inverse of :func:`read_partition`; returns what was written.

    A partition that is already there is replaced, whole or not at all; any other file is not.
    """
    indices = [owned.tolist() for owned in partition.indices]
    files: dict[Path, dict[ClientId, Any]] = {
        path: dict(zip(partition.client_ids, indices, strict=True))
    }
    if partition.true_clusters is not None:
        clusters = partition.true_clusters.tolist()
        files[clusters_file(path)] = dict(zip(partition.client_ids, clusters, strict=True))
    try:
        _check_replaceable(path, _are_indices)
        _check_replaceable(clusters_file(path), _is_cluster)
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace_all(files)
        if partition.true_clusters is None:
            clusters_file(path).unlink(missing_ok=True)  # those of the partition that was there
    except OSError as error:
        raise unwritable(path, error) from None
    return list(files)


def _replace_all(files: Mapping[Path, Mapping[ClientId, Any]]) -> None:
    """Write all files, and put them in place when all could be written."""
    drafts: dict[Path, Path] = {}
    try:
        for file, content in files.items():
            place = Path(os.path.realpath(file))  # where a link leads to
            drafts[place] = place.with_name(f".{place.name}.draft-{os.getpid()}")
            drafts[place].write_text(object_text(content), encoding="utf-8")
        for place, draft in drafts.items():
            draft.replace(place)
    finally:
        for draft in drafts.values():
            draft.unlink(missing_ok=True)


def _check_replaceable(path: Path, is_ours: Callable[[Any], bool]) -> None:
    """Refuse to overwrite or remove a file that no partition was written to."""
    if not path.exists() or not path.stat().st_size:
        return
    try:
        ours = all(map(is_ours, read_object(path).values()))
    except CadisError:
        ours = False
    if not ours:
        raise CadisError(
            f"{path} is there already and has something else than a partition in it; move it "
            "away, or name another file for the partition."
        )


def _are_indices(value: Any) -> bool:
    return isinstance(value, list) and all(type(index) is int for index in value)


def _is_cluster(value: Any) -> bool:
    return type(value) is int and abs(value) < 10**18


def clusters_file(path: Path) -> Path:
    """Where the true clusters of a partition's file are."""
    return path.with_suffix(".clusters.json")


def client_ids_of(names: Sequence[str]) -> tuple[ClientId, ...]:
    """Names of clients; numbers if they all are, as JSON has no numbers for keys."""
    if all(map(_is_number, names)):
        return tuple(int(name) for name in names)
    return tuple(names)


def _is_number(name: str) -> bool:
    try:
        return name.isdecimal() and str(int(name)) == name
    except ValueError:  # more digits than Python takes
        return False


def _check_indices(path: Path, client: str, indices: Any, num_examples: int, minimum: int) -> None:
    where = f"In {path}, client {client}"
    if not _are_indices(indices):
        raise CadisError(f"{where} must have a list of whole numbers; give training indices.")
    if len(indices) < minimum:
        raise CadisError(
            f"{where} has {len(indices)} samples, and {minimum} are the fewest; give it more, or "
            "ask for fewer by --min-samples."
        )
    wrong = next((index for index in indices if not 0 <= index < num_examples), None)
    if wrong is not None:
        raise CadisError(
            f"{where} has the index {wrong}, but the training set has {num_examples} samples, "
            "numbered from 0; correct it, or choose the right dataset."
        )


def _check_disjoint(path: Path, client: str, indices: list[int], owners: dict[int, str]) -> None:
    for index in indices:
        if index in owners:
            other = "twice" if owners[index] == client else f"like client {owners[index]}"
            raise CadisError(
                f"In {path}, client {client} has the index {index} {other}; correct it, or allow "
                "it by --allow-overlap."
            )
        owners[index] = client


def _read_clusters(path: Path, clients: Sequence[str]) -> Tensor | None:
    if not is_file(path):
        return None
    content = read_object(path)
    if set(content) != set(clients) or not all(map(_is_cluster, content.values())):
        raise CadisError(
            f"The file {path} must have the number of a cluster for each client, a whole number "
            "of at most 18 digits; correct it, or move it away."
        )
    return torch.tensor([content[client] for client in clients])

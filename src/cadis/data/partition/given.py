"""Partitions that are given: by the data themselves, or by a file."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cadis._io import is_file, object_text, read_object, unwritable
from cadis.data.partition.splitting import Partition
from cadis.errors import CadisError
from cadis.types import ClientId


def given_by_data(owners: Mapping[str, Tensor], minimum: int) -> Partition:
    """Return the partition that the data themselves say."""
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
    return Partition(tuple(owners.values()), client_ids=_client_ids(list(owners)))


def read_partition(path: Path, num_examples: int, allow_overlap: bool, minimum: int) -> Partition:
    """Read ``{client: [training indices]}``, and the true clusters from a file beside it.

    The clusters of ``mc.json`` are in ``mc.clusters.json``, ``{client: cluster}``, if known.
    """
    content = read_object(path)
    owners: dict[int, str] = {}
    for client, indices in content.items():
        where = f"In {path}, client {client}"
        _check_indices(where, indices, num_examples, minimum)
        for index in indices:
            if index in owners and not allow_overlap:
                other = "twice" if owners[index] == client else f"like client {owners[index]}"
                raise CadisError(
                    f"{where} has the index {index} {other}; correct it, or allow it by "
                    "--allow-overlap."
                )
            owners[index] = client
    return Partition(
        tuple(torch.tensor(indices, dtype=torch.int64) for indices in content.values()),
        _read_clusters(_clusters_file(path), list(content)),
        _client_ids(list(content)),
    )


def write_partition(path: Path, partition: Partition) -> list[Path]:
    """Write what :func:`read_partition` reads; return the files.

    A partition that is already there is replaced, whole or not at all; any other file is not.
    """
    clusters_path = _clusters_file(path)
    values = {path: [owned.tolist() for owned in partition.indices]}
    if partition.true_clusters is not None:
        values[clusters_path] = partition.true_clusters.tolist()
    texts = {
        file: object_text(dict(zip(partition.client_ids, each, strict=True)))
        for file, each in values.items()
    }
    try:
        _check_replaceable(path, _are_indices)
        _check_replaceable(clusters_path, _is_cluster)
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace_all(texts)
        if partition.true_clusters is None:
            clusters_path.unlink(missing_ok=True)  # those of the partition that was there
    except OSError as error:
        raise unwritable(path, error) from None
    return list(values)


def _replace_all(texts: Mapping[Path, str]) -> None:
    """Write all files, and put them in place when all could be written."""
    drafts: dict[Path, Path] = {}
    try:
        for file, text in texts.items():
            place = Path(os.path.realpath(file))  # where a link leads to
            drafts[place] = place.with_name(f".{place.name}.draft-{os.getpid()}")
            drafts[place].write_text(text, encoding="utf-8")
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


def _clusters_file(path: Path) -> Path:
    return path.with_suffix(".clusters.json")


def _client_ids(names: list[str]) -> tuple[ClientId, ...]:
    """Return names of clients; numbers if they all are, as JSON has no numbers for keys."""
    try:
        numbers = [int(name) for name in names if name.isdecimal()]
    except ValueError:  # more digits than Python takes
        return tuple(names)
    return tuple(numbers) if [*map(str, numbers)] == names else tuple(names)


def _check_indices(where: str, indices: Any, num_examples: int, minimum: int) -> None:
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


def _read_clusters(path: Path, clients: list[str]) -> Tensor | None:
    if not is_file(path):
        return None
    content = read_object(path)
    if set(content) != set(clients) or not all(map(_is_cluster, content.values())):
        raise CadisError(
            f"The file {path} must have the number of a cluster for each client, a whole number "
            "of at most 18 digits; correct it, or move it away."
        )
    return torch.tensor([content[client] for client in clients])

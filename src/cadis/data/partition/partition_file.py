"""Partitions that are not drawn at random: defined by the dataset, or read from a file."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cadis._io import (
    check_output,
    check_path,
    format_json,
    get_draft_path,
    has_name,
    make_write_error,
    read_json_object,
    write_draft,
)
from cadis.data.partition.splitting import Partition
from cadis.errors import CadisError
from cadis.types import ClientId


def partition_by_owner(client_indices: Mapping[str, Tensor], minimum: int) -> Partition:
    """Return the partition that the dataset itself defines.

    Args:
        client_indices: indices of the training samples of each client, see
            :attr:`cadis.data.Dataset.client_indices`.
        minimum: smallest number of samples that a client may have.

    Example:
        >>> import torch
        >>> from cadis.data.partition import partition_by_owner
        >>> partition_by_owner({"ann": torch.tensor([0, 2])}, minimum=2).client_ids
        ('ann',)
    """
    if not client_indices:
        raise CadisError(
            "The data do not say which client owns which samples; choose another partition than "
            "'clients', put images into <client>/<class>/<image>, or name the column of the "
            "clients with --client-column."
        )
    for client, indices in client_indices.items():
        if len(indices) < minimum:
            raise CadisError(
                f"Client {client} has {len(indices)} samples, but the minimum is {minimum}; give "
                "it more, leave it out, or lower --min-samples."
            )
    return Partition(
        tuple(client_indices.values()), client_ids=_parse_client_ids(list(client_indices))
    )


def read_partition(path: Path, num_samples: int, allow_overlap: bool, minimum: int) -> Partition:
    """Read a partition, and the true clusters from a file beside it if there is one.

    Args:
        path: JSON file, ``{client: [training indices]}``. The true clusters of ``mc.json`` are in
            ``mc.clusters.json``, ``{client: cluster}``.
        num_samples: number of training samples of the dataset.
        allow_overlap: whether a sample may occur more than once.
        minimum: smallest number of samples that a client may have.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> from cadis.data.partition import read_partition
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "partition.json")
        ...     _ = path.write_text('{"ann": [0, 2], "bob": [1, 3]}')
        ...     partition = read_partition(path, num_samples=4, allow_overlap=False, minimum=2)
        >>> partition.client_ids
        ('ann', 'bob')
    """
    path = check_path("path", path)
    content = read_json_object(path)
    owners: dict[int, str] = {}
    for client, indices in content.items():
        subject = f"In {path}, client {client}"
        _check_indices(subject, indices, num_samples, minimum)
        for index in indices:
            if index in owners and not allow_overlap:
                is_same = owners[index] == client
                problem = " twice" if is_same else f", which client {owners[index]} has too"
                raise CadisError(
                    f"{subject} has the index {index}{problem}; correct it, or allow it with "
                    "--allow-overlap."
                )
            owners[index] = client
    return Partition(
        tuple(torch.tensor(indices, dtype=torch.int64) for indices in content.values()),
        _read_clusters(_get_clusters_path(path), list(content)),
        _parse_client_ids(list(content)),
    )


def write_partition(path: Path, partition: Partition) -> list[Path]:
    """Write a partition in the format of :func:`read_partition`.

    An existing partition is replaced, completely or not at all. Other files are not overwritten.

    Args:
        path: JSON file of the partition; the true clusters are written beside it.
        partition: partition to write.

    Returns:
        Paths of the files that were written.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> import torch
        >>> from cadis.data.partition import Partition, write_partition
        >>> partition = Partition((torch.tensor([0, 1]),), torch.tensor([0]))
        >>> with TemporaryDirectory() as folder:
        ...     [path.name for path in write_partition(Path(folder, "mc.json"), partition)]
        ['mc.json', 'mc.clusters.json']
    """
    clusters_path = _get_clusters_path(path)
    values = {path: [indices.tolist() for indices in partition.indices]}
    if partition.true_clusters is not None:
        values[clusters_path] = partition.true_clusters.tolist()
    texts = {
        file: format_json(dict(zip(partition.client_ids, per_client, strict=True)))
        for file, per_client in values.items()
    }
    try:
        _check_replaceable(path, _is_index_list)
        _check_replaceable(clusters_path, _is_cluster)
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace_all(texts)
        if partition.true_clusters is None:
            clusters_path.unlink(missing_ok=True)  # clusters of the partition just replaced
    except OSError as error:
        raise make_write_error(path, error) from None
    return list(values)


def _replace_all(texts: Mapping[Path, str]) -> None:
    """Write all texts to temporary files, then move them to their paths."""
    drafts: dict[Path, Path] = {}
    try:
        for file, text in texts.items():
            drafts[file] = get_draft_path(file)
            write_draft(file, text.encode())
        for file, draft in drafts.items():
            draft.replace(file)
    finally:
        for draft in drafts.values():
            draft.unlink(missing_ok=True)


def _check_replaceable(path: Path, is_valid: Callable[[Any], bool]) -> None:
    """Raise an error if the file exists and was not written by :func:`write_partition`."""
    check_output(path)
    if not path.exists() or not path.stat().st_size:
        return
    try:
        is_partition = all(map(is_valid, read_json_object(path).values()))
    except CadisError:
        is_partition = False
    if not is_partition:
        raise CadisError(
            f"{path} exists and does not contain a partition; move it away, or choose another file "
            "for the partition."
        )


def _is_index_list(value: Any) -> bool:
    return isinstance(value, list) and all(type(index) is int for index in value)


def _is_cluster(value: Any) -> bool:
    return type(value) is int and abs(value) < 10**18


def _get_clusters_path(path: Path) -> Path:
    return path.with_suffix(".clusters.json")


def _parse_client_ids(names: list[str]) -> tuple[ClientId, ...]:
    """Convert names to integers if all are integers, because JSON keys are always strings."""
    try:
        numbers = [int(name) for name in names if name.isdecimal()]
    except ValueError:  # more digits than int() accepts
        return tuple(names)
    return tuple(numbers) if [*map(str, numbers)] == names else tuple(names)


def _check_indices(subject: str, indices: Any, num_samples: int, minimum: int) -> None:
    if not _is_index_list(indices):
        raise CadisError(
            f"{subject} must have a list of integers; give the indices of its training samples."
        )
    if len(indices) < minimum:
        raise CadisError(
            f"{subject} has {len(indices)} samples, but the minimum is {minimum}; give it more, or "
            "lower --min-samples."
        )
    wrong = next((index for index in indices if not 0 <= index < num_samples), None)
    if wrong is not None:
        raise CadisError(
            f"{subject} has the index {wrong}, but the training set has {num_samples} samples, "
            "numbered from 0; correct it, or choose the right dataset."
        )


def _read_clusters(path: Path, clients: list[str]) -> Tensor | None:
    if not has_name(path):
        return None
    content = read_json_object(path)
    if set(content) != set(clients) or not all(map(_is_cluster, content.values())):
        raise CadisError(
            f"The file {path} must give each client the number of its cluster, an integer of at "
            "most 18 digits; correct it, or move it away."
        )
    return torch.tensor([content[client] for client in clients])

"""Signatures of run folders whose options name code of the user.

A run of your own method can be resumed without asking, although its ``config.toml`` names code,
because the folder has a signature that only you on this machine can make. The owner of a file is no
evidence: a folder that you unpack belongs to you.

The signature is an HMAC-SHA256 of the options, and of the paths of the files that they name, with a
secret key in the user's data folder. The content of these files may change. Options that a resumed
run may change are left out. If the key cannot be stored, runs have no signature.
"""

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from platformdirs import user_data_path

from cadis._io import is_file, is_user_code, locate_user_code, parse_toml, replace_file, to_toml
from cadis.algorithm import KINDS, split_names
from cadis.data import USER_DATA_PREFIXES, is_user_function
from cadis.options import CHANGEABLE_OPTIONS
from cadis.permission import permit_code
from cadis.store.storage import read_file

SIGNATURE_FILE = ".cadis-signature"
_KEY_BYTES, _SIGNATURE_BYTES = 32, 64


def find_code(options: Mapping[str, Any]) -> list[str]:
    """Return the names of users' code in options: parts, model and dataset."""
    names = [name for key in KINDS for name in split_names(options.get(key, ()))]
    names += [options.get(key) for key in (*KINDS, "model")]  # a path may contain a comma
    code = [name for name in names if isinstance(name, str) and is_user_code(name)]
    dataset = options.get("dataset")
    if isinstance(dataset, str) and is_user_function(dataset):
        code.append(dataset)
    return code


def sign(folder: Path, options: Mapping[str, Any]) -> None:
    """Sign the folder of a new run, if its options name code and the user has a key."""
    names = find_code(options)
    key = _get_key() if names else None
    if key is not None:
        plain = parse_toml(to_toml(options), folder)
        replace_file(folder / SIGNATURE_FILE, _compute_signature(key, plain).encode())


def permit_signed_code(folder: Path, options: Mapping[str, Any]) -> None:
    """Allow the code that options name, if this user created the folder on this machine.

    Args:
        folder: the folder of a run.
        options: the content of its ``config.toml``.
    """
    path = folder / SIGNATURE_FILE
    key = _get_key() if is_file(path) and path.stat().st_size == _SIGNATURE_BYTES else None
    if key is None:
        return
    try:
        expected = _compute_signature(key, options)
    except RecursionError:  # options of cadis are not nested that deep
        return
    if hmac.compare_digest(read_file(path), expected.encode()):
        permit_code(find_code(options))


def _compute_signature(key: bytes, options: Mapping[str, Any]) -> str:
    signed = {name: value for name, value in options.items() if name not in CHANGEABLE_OPTIONS}
    if str(signed.get("dataset")).startswith(USER_DATA_PREFIXES):
        del signed["dataset"]  # a resumed run may read the same data from another folder
    paths = {name: locate_user_code(name) for name in find_code(options)}
    text = json.dumps({"options": signed, "paths": paths}, sort_keys=True, default=str)
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _get_key() -> bytes | None:
    """Return the secret key of the user, which is created at the first call; None if impossible."""
    path = user_data_path("cadis", appauthor=False) / "signing-key"
    try:
        if not path.exists():
            _create_key(path)
        key = path.read_bytes()
    except OSError:
        return None
    return key if len(key) == _KEY_BYTES else None


def _create_key(path: Path) -> None:
    """Write a new key that only the user can read, unless another process is faster."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
        with suppress(FileExistsError):
            os.link(draft, path)  # fails if the key exists, unlike a rename
    finally:
        draft.unlink()

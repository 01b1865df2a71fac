"""Tests that the examples in the docstrings of ``cadis.data`` run."""

import doctest
from importlib import import_module

import pytest

MODULES = [
    "conversion",
    "digits",
    "samples",
    "holdout",
    "image_folder",
    "image_reading",
    "loading",
    "partition.clustered",
    "partition.flower_datasets",
    "partition.partition_file",
    "partition.splitting",
    "partition.unclustered",
    "preprocessing",
    "site_data",
    "table_files",
    "tables",
    "user_data",
]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name: str) -> None:
    result = doctest.testmod(import_module(f"cadis.data.{name}"))
    assert result.attempted > 0
    assert result.failed == 0

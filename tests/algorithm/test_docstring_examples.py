"""The examples in the docstrings of ``cadis.algorithm`` run as they are written."""

import doctest
from importlib import import_module

import pytest

BASE_CLASSES = {
    "base_method": "BaseMethod",
    "samplers.base": "BaseSampler",
    "server_optimizers": "ServerOptimizer",
    "transforms": "Transform",
    "tasks": "Task",
    "local_optimizers": "LocalOptimizer",
}
OTHERS = ["about", "aggregation", "algorithm", "catalogue", "parts", "validation"]


@pytest.mark.parametrize("name", [*BASE_CLASSES, *OTHERS])
def test_examples_of_the_module_run(name: str) -> None:
    result = doctest.testmod(import_module(f"cadis.algorithm.{name}"))
    assert result.attempted
    assert result.failed == 0


@pytest.mark.parametrize(("module", "cls"), BASE_CLASSES.items())
def test_base_class_has_an_example_that_trains(module: str, cls: str) -> None:
    docstring = getattr(import_module(f"cadis.algorithm.{module}"), cls).__doc__
    assert "Example:" in docstring
    assert ">>> result = cadis.run(" in docstring

"""The example in the docstring of the base class of methods runs as it is written."""

import doctest

from cadis.algorithm import base_method


def test_the_toy_method_of_the_docstring_runs() -> None:
    results = doctest.testmod(base_method)
    assert results.attempted > 5
    assert results.failed == 0

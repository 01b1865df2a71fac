"""Hooks that build the site of the documentation; ``make docs`` builds all of it."""

import re
from pathlib import Path

import pytest

pytest.importorskip("mkdocs")

from mkdocs.exceptions import PluginError

import cadis
from cadis.algorithm.methods import METHODS
from website import offline, reference, repository

ROOT = Path(__file__).parents[1]


def test_public_names_are_in_the_reference() -> None:
    page = (ROOT / "docs" / "reference" / "running.md").read_text(encoding="utf-8")
    described = set(re.findall(r"^::: cadis\.(\w+)$", page, re.MULTILINE))
    methods = {method.__name__ for method in METHODS.values()}
    assert described | methods == set(cadis.__all__)


def test_every_method_is_listed_once_under_its_topic() -> None:
    text = reference.on_page_markdown(f"# Methods\n\n{reference.MARKER}\n")
    assert text.startswith(
        "# Methods\n\n## Clustered aggregation\n\n::: cadis.algorithm.methods.CADIS\n"
    )
    listed = re.findall(r"^::: cadis\.algorithm\.methods\.(\w+)$", text, re.MULTILINE)
    assert sorted(listed) == sorted(method.__name__ for method in METHODS.values())


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("docs/how-to/parts.md", "[a](figures.md#colours)", "[a](figures.md#colours)"),
        ("docs/how-to/parts.md", "![a](../images/round.svg)", "![a](../images/round.svg)"),
        ("docs/how-to/parts.md", "[a](../../CONTRIBUTING.md)", "[a](../project/contributing.md)"),
        ("docs/index.md", "[a](../examples/methods)", "[a](project/examples/methods.md)"),
        ("docs/reference/parts.md", "[a](../how-to/parts.md)", "[a](../how-to/parts.md)"),
        ("CONTRIBUTING.md", "[a](docs/how-to/parts.md)", "[a](../how-to/parts.md)"),
        ("CONTRIBUTING.md", "[a](CHANGELOG.md)", "[a](changelog.md)"),
        ("docs/how-to/parts.md", "[a](https://a.b/c) [b](#c)", "[a](https://a.b/c) [b](#c)"),
        ("docs/how-to/parts.md", "`[a](nothing.md)`", "`[a](nothing.md)`"),
        ("docs/how-to/parts.md", "```\n[a](nothing.md)\n```", "```\n[a](nothing.md)\n```"),
    ],
)
def test_links_are_rewritten_to_pages(path: str, text: str, expected: str) -> None:
    assert repository.rewrite_links(text, path) == expected


def test_broken_link_is_refused() -> None:
    with pytest.raises(
        PluginError, match=r"^docs/how-to/parts.md links to ../nothing, which does not"
    ):
        repository.rewrite_links("[a](../nothing)", "docs/how-to/parts.md")


@pytest.mark.parametrize(
    ("html", "loads"),
    [
        ('<script src="https://a.b/c.js"></script>', True),
        ('<script async src="//a.b/c.js"></script>', True),
        ('<link rel="stylesheet" href="https://a.b/c.css">', True),
        ('<img alt="" src="http://a.b/c.png">', True),
        ("@import 'https://a.b/c.css';", True),
        ("src: url(https://a.b/c.woff2)", True),
        ('<a href="https://a.b">a page</a>', False),
        ('<script src="assets/c.js"></script><link href="assets/c.css">', False),
    ],
)
def test_files_loaded_from_the_network_are_found(html: str, loads: bool) -> None:
    assert bool(offline.LOADED.search(html)) == loads


def test_text_that_is_not_markdown_is_shown() -> None:
    html = "<p>As :class:<code>~cadis.Run</code>: L - <g_i, w>, <b>a</b><br/></p>"
    expected = "<p>As <code>cadis.Run</code>: L - &lt;g_i, w>, <b>a</b><br/></p>"
    assert reference.on_page_content(html) == expected

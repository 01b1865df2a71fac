"""What makes a site of the documentation. ``make docs`` builds all of it."""

import re
from pathlib import Path

import pytest

pytest.importorskip("mkdocs")

from mkdocs.exceptions import PluginError

import cadis
from cadis.algorithm.methods import METHODS
from website import offline, reference, repository

ROOT = Path(__file__).parents[1]


def test_all_that_is_public_is_in_the_reference() -> None:
    page = (ROOT / "docs" / "reference" / "running.md").read_text(encoding="utf-8")
    described = set(re.findall(r"^::: cadis\.(\w+)$", page, re.MULTILINE))
    methods = {method.__name__ for method in METHODS.values()}
    assert described | methods == set(cadis.__all__)


def test_every_method_is_listed_once_under_what_it_is_about() -> None:
    text = reference.on_page_markdown(f"# Methods\n\n{reference.HERE}\n")
    assert text.startswith(
        "# Methods\n\n## Clustered aggregation\n\n::: cadis.algorithm.methods.CADIS\n"
    )
    listed = re.findall(r"^::: cadis\.algorithm\.methods\.(\w+)$", text, re.MULTILINE)
    assert sorted(listed) == sorted(method.__name__ for method in METHODS.values())


@pytest.mark.parametrize(
    ("path", "written", "shown"),
    [
        ("docs/parts.md", "[a](data.md#models)", "[a](data.md#models)"),
        ("docs/parts.md", "![a](images/round.svg)", "![a](images/round.svg)"),
        ("docs/parts.md", "[a](../CONTRIBUTING.md)", "[a](project/contributing.md)"),
        ("docs/parts.md", "[a](../examples/methods)", "[a](project/examples/methods.md)"),
        ("docs/reference/parts.md", "[a](../parts.md)", "[a](../parts.md)"),
        ("CONTRIBUTING.md", "[a](docs/parts.md)", "[a](../parts.md)"),
        ("CONTRIBUTING.md", "[a](CHANGELOG.md)", "[a](changelog.md)"),
        ("docs/parts.md", "[a](https://a.b/c) [b](#c)", "[a](https://a.b/c) [b](#c)"),
        ("docs/parts.md", "`[a](nothing.md)`", "`[a](nothing.md)`"),
        ("docs/parts.md", "```\n[a](nothing.md)\n```", "```\n[a](nothing.md)\n```"),
    ],
)
def test_links_lead_to_pages(path: str, written: str, shown: str) -> None:
    assert repository.rewritten(written, path) == shown


def test_a_link_that_leads_nowhere_is_told() -> None:
    with pytest.raises(PluginError, match=r"^docs/parts.md links to ../nothing, which is not"):
        repository.rewritten("[a](../nothing)", "docs/parts.md")


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
def test_what_is_loaded_from_the_network(html: str, loads: bool) -> None:
    assert bool(offline.LOADED.search(html)) == loads


def test_what_is_not_markdown_is_shown() -> None:
    html = "<p>As :class:<code>~cadis.Run</code>: L - <g_i, w>, <b>a</b><br/></p>"
    shown = "<p>As <code>cadis.Run</code>: L - &lt;g_i, w>, <b>a</b><br/></p>"
    assert reference.on_page_content(html) == shown

"""The reference of the library: all methods by what they are about, and names in docstrings."""

import re
from typing import Any

from mkdocs.structure.pages import Page

from cadis.core import About
from cadis.methods import METHODS

HERE = "<!-- all methods -->"
ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):<code>~?([^<]+)</code>")
DIRECTIVE = """
::: cadis.methods.{name}
    options:
      members: false
      show_source: true
"""


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Put all methods where a page asks for them; guides are found before the reference."""
    if page.file.src_uri.startswith("reference/"):
        page.meta["search"] = {"boost": 0.3}
    if HERE not in markdown:
        return markdown
    by_kind: dict[str, str] = {}
    for method in METHODS.values():
        about: About = getattr(method, "about", About())
        entry = DIRECTIVE.format(name=method.__name__)
        by_kind[about.kind] = by_kind.get(about.kind, "") + entry
    listed = [f"## {kind.capitalize()}\n{entries}" for kind, entries in by_kind.items()]
    return markdown.replace(HERE, "\n".join(listed))


def on_page_content(html: str, **_: Any) -> str:
    """Docstrings mark names as Sphinx does, which Markdown does not know."""
    return ROLE.sub(r"<code>\1</code>", html)

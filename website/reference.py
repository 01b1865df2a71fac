"""The reference of the library: all methods by what they are about, and what docstrings hold."""

import re
from typing import Any

from cadis.algorithm import About
from cadis.algorithm.methods import METHODS

HERE = "<!-- all methods -->"
ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):<code>~?([^<]+)</code>")
NO_TAG = re.compile(r"<(?=[A-Za-z][\w-]*[^\w\s/>:-])")
DIRECTIVE = """
::: cadis.algorithm.methods.{name}
    options:
      members: false
      show_source: true
"""


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put all methods where a page asks for them."""
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
    """Show what is not Markdown: names as Sphinx marks them, and inner products, <a, b>."""
    return NO_TAG.sub("&lt;", ROLE.sub(r"<code>\1</code>", html))

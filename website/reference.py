"""Generate the reference page of the methods, and convert notation of docstrings to HTML."""

import re
from typing import Any

from cadis.algorithm import About
from cadis.algorithm.methods import METHODS

MARKER = "<!-- all methods -->"
ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):<code>~?([^<]+)</code>")
NO_TAG = re.compile(r"<(?=[A-Za-z][\w-]*[^\w\s/>:-])")
DIRECTIVE = """
::: cadis.algorithm.methods.{name}
    options:
      members: false
      show_source: true
"""


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the marker MARKER with all methods, sorted by topic."""
    if MARKER not in markdown:
        return markdown
    by_topic: dict[str, str] = {}
    for method in METHODS.values():
        about: About = getattr(method, "about", About())
        entry = DIRECTIVE.format(name=method.__name__)
        by_topic[about.topic] = by_topic.get(about.topic, "") + entry
    sections = [f"## {topic.capitalize()}\n{entries}" for topic, entries in by_topic.items()]
    return markdown.replace(MARKER, "\n".join(sections))


def on_page_content(html: str, **_: Any) -> str:
    """Convert Sphinx roles to code, and escape inner products such as <a, b>."""
    return NO_TAG.sub("&lt;", ROLE.sub(r"<code>\1</code>", html))

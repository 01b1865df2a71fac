"""Convert formulas, ``$...$`` and ``$$...$$`` in a page, to MathML when the site is built.

Browsers draw MathML without scripts, so the site needs nothing from the network. GitHub and other
hosts of repositories show the same notation as formulas.
"""

import re
from typing import Any

from latex2mathml.converter import convert

CODE = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
FORMULA = re.compile(
    r"\$\$(.+?)\$\$|(?<![\\$\w])\$([^\s$](?:[^$\n]*[^\s$])?)\$(?![\w$])", re.DOTALL
)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the formulas of a page with MathML, except in code."""
    parts = CODE.split(markdown)  # text and code alternate
    parts[::2] = [FORMULA.sub(_to_mathml, text) for text in parts[::2]]
    return "".join(parts)


def _to_mathml(match: re.Match[str]) -> str:
    block, inline = match.groups()
    if block is None:
        return f"<span>{convert(inline)}</span>"  # <math> would begin a block at a line's start
    return f"\n\n<div>{convert(' '.join(block.split()), display='block')}</div>\n\n"

"""Check that no page loads a file from the network; links to other sites are allowed."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError

LOADED = re.compile(
    r"""<(?:script|img|iframe|source|video)\b[^>]*\bsrc=["']?(?:https?:)?//[^"'\s>]+"""
    r"""|<link\b[^>]*\bhref=["']?(?:https?:)?//[^"'\s>]+"""
    r"""|(?:url\(|@import )["']?(?:https?:)?//[^"')\s]+""",
)


def on_post_build(config: MkDocsConfig) -> None:
    """Raise an error if a page loads a script, image, font or style sheet from another host."""
    site = Path(config.site_dir)
    for file in sorted([*site.rglob("*.html"), *site.rglob("*.css")]):
        match = LOADED.search(file.read_text(encoding="utf-8"))
        if match:
            raise PluginError(f"{file.relative_to(site)} loads from the network: {match[0]}")

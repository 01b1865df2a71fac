"""The site loads nothing from the network; links that a reader may follow are another matter."""

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
    """Refuse a site with a script, a picture, a font or a style of somebody else's."""
    site = Path(config.site_dir)
    for file in sorted([*site.rglob("*.html"), *site.rglob("*.css")]):
        found = LOADED.search(file.read_text(encoding="utf-8"))
        if found:
            raise PluginError(f"{file.relative_to(site)} loads from the network: {found[0]}")

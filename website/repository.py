"""Add pages to the site for files outside docs/ that other pages link to.

Pages link to other files of the repository with relative paths: ``../examples/...``,
``../CONTRIBUTING.md``. Each such file becomes a page of the site: Markdown stays unchanged, other
files are shown as code, and a folder as a list. So a link works both on the host of the repository
and on the site. A broken link is an error.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)\s#]+)((?:#[^)\s]*)?)(?=\))")
CODE = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
LEAD = "<!-- the lead of README.md -->"
BADGE = re.compile(r"^\[!\[.*\n", re.MULTILINE)
ALWAYS = ("CHANGELOG.md", "CONTRIBUTING.md")
GENERATED = ("docs/reference/commands.md",)
"""Pages that other hooks generate."""
LANGUAGES = {".py": "python", ".toml": "toml", ".cff": "yaml", ".sh": "bash", "": "text"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each file outside docs/ that a page links to."""
    waiting = [*ALWAYS]
    for file in files.documentation_pages():
        waiting += _find_outside_links(_insert_lead(file.content_string), f"docs/{file.src_uri}")
    done: set[str] = set()
    while waiting:
        path = waiting.pop()
        if path not in done:
            done.add(path)
            text = _read_page(path)
            waiting += _find_outside_links(text, path)
            page = File.generated(config, _page_path(path), content=rewrite_links(text, path))
            page.inclusion = InclusionLevel.NOT_IN_NAV
            files.append(page)
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Rewrite the links of a page in docs/, so that they lead to pages of the site."""
    if page.file.generated_by:
        return markdown
    if page.is_homepage:
        page.meta["hide"] = ["navigation", "toc"]
    return rewrite_links(_insert_lead(markdown), f"docs/{page.file.src_uri}")


def _insert_lead(text: str) -> str:
    """Replace the marker LEAD with the README's text before its first section, without badges."""
    if LEAD not in text:
        return text
    lead, _, _ = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## ")
    lead = BADGE.sub("", lead)
    return text.replace(LEAD, LINK.sub(lambda link: posixpath.relpath(link[1], "docs"), lead))


def _read_page(path: str) -> str:
    """Return the Markdown page of a file or folder, with links relative to that file."""
    file = ROOT / path
    if path.endswith(".md"):
        return file.read_text(encoding="utf-8")
    if file.is_dir():
        names = sorted(entry.name for entry in file.iterdir() if entry.suffix in LANGUAGES)
        names = [name for name in names if not name.startswith((".", "_"))]
        return f"# {path}\n\n" + "".join(f"- [`{n}`]({file.name}/{n})\n" for n in names)
    code = file.read_text(encoding="utf-8")
    return f"# {path}\n\n```{LANGUAGES.get(file.suffix, 'text')}\n{code}```\n"


def _find_outside_links(text: str, path: str) -> list[str]:
    """Return the files outside docs/ that a text links to."""
    targets = [_resolve_link(link, path) for link in _find_links(text)]
    return [target for target in targets if not target.startswith("docs/")]


def _find_links(text: str) -> list[str]:
    parts = CODE.split(text)[::2]
    return [match[0] for part in parts for match in LINK.findall(part)]


def _resolve_link(link: str, path: str) -> str:
    """Return the target of a link, relative to the root of the repository."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link))
    if target not in GENERATED and not (ROOT / target).exists():
        raise PluginError(f"{path} links to {link}, which does not exist.")
    return target


def _page_path(path: str) -> str:
    """Return the path of a file's page on the site."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    name = path.removesuffix(".md").lower() if path.endswith(".md") else path
    return f"project/{name}.md"


def rewrite_links(text: str, path: str) -> str:
    """Rewrite the links of a text, so that they lead to pages of the site."""
    here = posixpath.dirname(_page_path(path))

    def to_page_link(link: re.Match[str]) -> str:
        target = posixpath.relpath(_page_path(_resolve_link(link[1], path)), here or ".")
        return target + link[2]

    parts = CODE.split(text)
    parts[::2] = [LINK.sub(to_page_link, part) for part in parts[::2]]
    return "".join(parts)

"""Links that lead out of docs/ lead to pages of the site, too.

Pages link to other files of the repository as a reader of it needs them: ``../examples/...``,
``../CONTRIBUTING.md``. Here each such file becomes a page: Markdown as it is, anything else as it
reads, a folder as a list. So a link works on a repository's host and on the site, and one that
leads nowhere fails the build.
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
ALWAYS = ("CHANGELOG.md", "CONTRIBUTING.md")
LANGUAGES = {".py": "python", ".toml": "toml", ".cff": "yaml", ".sh": "bash", "": "text"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for every file outside docs/ that some page links to."""
    waiting = [*ALWAYS]
    for file in files.documentation_pages():
        waiting += _outside(_with_lead(file.content_string), f"docs/{file.src_uri}")
    done: set[str] = set()
    while waiting:
        path = waiting.pop()
        if path not in done:
            done.add(path)
            text = _text_of(path)
            waiting += _outside(text, path)
            page = File.generated(config, _page_of(path), content=rewritten(text, path))
            page.inclusion = InclusionLevel.NOT_IN_NAV
            files.append(page)
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Let the links of the pages in docs/ lead to pages."""
    if page.file.generated_by:
        return markdown
    if page.is_homepage:
        page.meta["hide"] = ["navigation", "toc"]
    return rewritten(_with_lead(markdown), f"docs/{page.file.src_uri}")


def _with_lead(text: str) -> str:
    """What the README says before its first section, where a page asks for it."""
    if LEAD not in text:
        return text
    lead, _, _ = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## ")
    return text.replace(LEAD, LINK.sub(lambda link: posixpath.relpath(link[1], "docs"), lead))


def _text_of(path: str) -> str:
    """A file or folder of the repository as a page, with links as from its own place."""
    place = ROOT / path
    if path.endswith(".md"):
        return place.read_text(encoding="utf-8")
    if place.is_dir():
        names = sorted(each.name for each in place.iterdir() if each.suffix in LANGUAGES)
        names = [name for name in names if not name.startswith((".", "_"))]
        return f"# {path}\n\n" + "".join(f"- [`{n}`]({place.name}/{n})\n" for n in names)
    code = place.read_text(encoding="utf-8")
    return f"# {path}\n\n```{LANGUAGES.get(place.suffix, 'text')}\n{code}```\n"


def _outside(text: str, path: str) -> list[str]:
    """Files outside docs/ that a file links to."""
    targets = [_target(link, path) for link in _links(text)]
    return [each for each in targets if not each.startswith("docs/")]


def _links(text: str) -> list[str]:
    parts = CODE.split(text)[::2]
    return [found[0] for part in parts for found in LINK.findall(part)]


def _target(link: str, path: str) -> str:
    """Where a link in a file leads, from the root of the repository."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link))
    if not (ROOT / target).exists():
        raise PluginError(f"{path} links to {link}, which is not there.")
    return target


def _page_of(path: str) -> str:
    """The page of a file of the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    name = path.removesuffix(".md").lower() if path.endswith(".md") else path
    return f"project/{name}.md"


def rewritten(text: str, path: str) -> str:
    """The same with links between pages of the site."""
    here = posixpath.dirname(_page_of(path))

    def leading(link: re.Match[str]) -> str:
        target = posixpath.relpath(_page_of(_target(link[1], path)), here or ".")
        return target + link[2]

    parts = CODE.split(text)
    parts[::2] = [LINK.sub(leading, part) for part in parts[::2]]
    return "".join(parts)

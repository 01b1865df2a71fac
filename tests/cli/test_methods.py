"""``cadis methods``: the list of all built-in parts, and the page of one of them."""

import pytest
from click.testing import CliRunner

from cadis.algorithm import KINDS, build_catalogue
from cadis.algorithm.catalogue import TOPICS, Entry
from cadis.cli.command_line import commands

ENTRIES = [entry for entries in build_catalogue().values() for entry in entries]


WITHOUT_PAPER = {"singleset", "clusters", "plain"}


def run_methods(*arguments: str, columns: int = 100) -> str:
    result = CliRunner().invoke(commands, ["methods", *arguments], env={"COLUMNS": str(columns)})
    assert result.exit_code == 0, result.output
    return result.output


def test_each_part_is_listed_once_under_its_topic() -> None:
    keys = ("method", "sampler", "server_optimizer", "transforms")
    names = [name for key in keys for name in KINDS[key].registry]
    assert sorted(entry.name for entry in ENTRIES) == sorted(names)
    output = run_methods()
    positions = [output.index(f"{topic.capitalize()}") for topic in TOPICS]
    assert positions == sorted(positions)
    for entry in ENTRIES:
        assert f" {entry.name} " in output


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_page_of_a_part_has_summary_paper_and_command(entry: Entry) -> None:
    assert 20 < len(entry.summary) <= 89
    assert entry.summary.endswith(".")
    output = run_methods(entry.name, columns=250)
    assert entry.summary in output
    assert f"cadis run {entry.option}" in output
    paper = entry.about.paper
    assert (paper is None) == (entry.name in WITHOUT_PAPER)
    if paper:
        assert f"{paper.title} ({paper.citation})" in output
        assert paper.link in output


def test_links_of_papers_are_addresses() -> None:
    sites = ("https://arxiv.org/abs/", "https://doi.org/", "https://openreview.net/")
    links = [entry.about.paper.link for entry in ENTRIES if entry.about.paper]
    assert all(link.startswith(sites) for link in links)


def test_page_of_a_method_has_parameters_and_default_parts() -> None:
    output = run_methods("cadis", columns=200)
    assert "--distillation" in output
    assert "factor lambda of the distillation term" in output
    assert "momentum" in output
    assert "Default sampler" in output


def test_list_fits_into_sixty_columns() -> None:
    output = run_methods(columns=60)
    assert all(entry.name in output for entry in ENTRIES)
    assert max(map(len, output.splitlines())) <= 60

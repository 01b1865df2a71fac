"""``cadis methods``: the list of all built-in parts, and the page of one of them."""

from pathlib import Path

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


def test_page_of_a_users_method(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    name = "examples/methods/fedcm.py:FedCM"
    output = run_methods(name, columns=200)
    assert "Add the mean direction D of the last round to each local step." in output
    assert "--alpha" in output
    assert f"cadis run --method {name}\n" in output
    assert f"--methods fedavg,{name}\n" in output
    assert "Sent besides the model" not in output  # the class has no facts


@pytest.mark.parametrize(
    ("base", "option"),
    [
        ("samplers import Uniform", "--sampler"),
        ("server_optimizers import Momentum", "--server-optimizer"),
        ("local_optimizers import SGD", "--local-optimizer"),
    ],
)
def test_page_of_another_users_part_names_its_option(
    base: str, option: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        f"from dataclasses import dataclass\nfrom cadis.algorithm.{base} as Base\n"
        "@dataclass(frozen=True)\nclass Mine(Base):\n"
        '    """A part of a user."""\n    name = "mine"\n'
    )
    output = run_methods(f"{path}:Mine", columns=400)
    assert "A part of a user." in output
    assert f"cadis run {option} {path}:Mine\n" in output


def test_list_fits_into_sixty_columns() -> None:
    output = run_methods(columns=60)
    assert all(entry.name in output for entry in ENTRIES)
    assert max(map(len, output.splitlines())) <= 60

from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from browser_support import label_of, pixels, report_of, settled, shown
from cadis.algorithm.methods import CADIS
from cadis.server import RoundRecord
from fabricated import with_clock, with_measures, write_run, write_study, write_sweep

LEVELS = {"fedavg": 0.6, "cadis": 0.9}
CHARTS = ["accuracy", "federation", "matrix", "weights", "flow", "confusion-0", "confusion-1",
          "fairness", "fairness-rounds", "convergence", "time"]  # fmt: skip


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two methods, two seeds, 200 rounds, hostile names."""
    path = tmp_path_factory.mktemp("study")
    return report_of(write_study(path, LEVELS, 2, rounds=200, clients=40))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_every_chart_is_drawn_and_nothing_is_wider_than_the_screen(
    browser: Browser, report: str, width: int, scheme: str
) -> None:
    with shown(browser, report, width, color_scheme=scheme) as page:
        page.evaluate("Cadis.redraw(true)")
        for name in CHARTS:
            assert page.evaluate(f"Cadis.charts['chart-{name}'].getWidth()") > 100
            assert len(label_of(page, f"chart-{name}")) > 20
            assert page.locator(f"#chart-{name}").get_attribute("role") == "img"
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        assert page.locator("h1").inner_text().startswith("digits: 40 clients")
        assert "wins" in page.locator(".sentence").inner_text()


def test_dark_and_light_follow_the_system_and_the_reader(browser: Browser, report: str) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    with shown(browser, report, color_scheme="light") as page:
        light, drawn = page.evaluate(background), pixels(page, "chart-accuracy")
        page.emulate_media(color_scheme="dark")
        page.wait_for_function(f"() => {background} !== '{light}'")
        settled(page)
        assert pixels(page, "chart-accuracy") != drawn  # charts follow
        page.select_option("#theme", "light")
        page.wait_for_function(f"() => {background} === '{light}'")


def test_the_slider_changes_the_matrix(browser: Browser, report: str) -> None:
    with shown(browser, report) as page:
        at_the_end = pixels(page, "chart-matrix")
        weights = pixels(page, "chart-weights")
        page.locator("#round").focus()
        page.keyboard.press("Home")  # by keyboard, as it must work
        settled(page)
        assert page.locator("#round").get_attribute("aria-valuetext") == "round 1"
        at_the_beginning = pixels(page, "chart-matrix")
        assert at_the_beginning != at_the_end
        assert pixels(page, "chart-weights") != weights
        page.check("#order-found")
        settled(page)
        page.keyboard.press("Tab")
        page.select_option("#run", index=1)
        settled(page)
        assert pixels(page, "chart-matrix") != at_the_beginning


def test_smoothing_and_measure_change_the_lines_and_the_axis(browser: Browser, report: str) -> None:
    axis = "Cadis.charts['chart-accuracy'].getOption()"
    with shown(browser, report) as page:
        smooth = pixels(page, "chart-accuracy")
        assert page.evaluate(f"{axis}.yAxis[0].name") == "accuracy, mean of 10 rounds"
        assert page.evaluate(f"{axis}.xAxis[0].min") == 1  # the first that was measured
        page.locator("#smoothing").fill("1")
        settled(page)
        rough = pixels(page, "chart-accuracy")
        assert rough != smooth
        page.select_option("#measure", "rare")
        settled(page)
        assert pixels(page, "chart-accuracy") != rough
        assert page.evaluate(f"{axis}.yAxis[0].name") == "accuracy on rare classes"


def test_measures_of_the_task_can_be_chosen(browser: Browser, tmp_path: Path) -> None:
    address = report_of(write_study(tmp_path, LEVELS, 2, further=with_measures))
    with shown(browser, address) as page:
        accuracy = pixels(page, "chart-accuracy")
        chosen = page.locator("#measure option").all_inner_texts()
        assert chosen == [
            "accuracy on all classes", "accuracy on rare classes", "auc", "balanced accuracy",
        ]  # fmt: skip
        page.select_option("#measure", "measure-auc")
        settled(page)
        assert pixels(page, "chart-accuracy") != accuracy
        label = label_of(page, "chart-accuracy")
        assert label.startswith("Measure auc over 12 rounds. At the end: FedAvg 0.")
        assert "Further measures" in page.locator("#tables").inner_text()


def test_accuracy_is_shown_over_simulated_time(browser: Browser, tmp_path: Path) -> None:
    address = report_of(write_study(tmp_path, LEVELS, 2, further=with_clock, speeds="10:1000"))
    with shown(browser, address) as page:
        over_rounds = pixels(page, "chart-accuracy")
        page.check("#over-time")
        settled(page)
        assert pixels(page, "chart-accuracy") != over_rounds
        label = label_of(page, "chart-accuracy")
        assert label.startswith("Accuracy on all classes over 120 simulated seconds. At the end: ")
        assert page.locator("#accuracy h2").inner_text() == "Accuracy over simulated time"
        assert page.locator("#over-rounds").is_visible()


def test_a_single_run_that_tells_clusters_only_has_its_matrix(
    browser: Browser, tmp_path: Path
) -> None:
    def further(record: RoundRecord) -> RoundRecord:
        return replace(record, report={"clusters": record.report["clusters"]})

    address = report_of(write_run(tmp_path / "run", CADIS(), rounds=6, further=further))
    with shown(browser, address) as page:
        assert "CADIS" in page.locator("#answer").inner_text()
        assert pixels(page, "chart-matrix")
        text = page.locator("#grouping").inner_text()
        assert "q of each pair of clients, the part of their common rounds in one cluster" in text
        assert "threshold" not in text


def test_scrolling_many_rounds_draws_nothing_again(browser: Browser, report: str) -> None:
    """Smooth means: each chart is drawn once, and a slider in a hurry skips what nobody sees."""
    with shown(browser, report) as page:
        page.evaluate("Cadis.redraw(true)")
        settled(page)
        drawn = page.evaluate("Cadis.rendered")
        page.evaluate(
            "async () => { for (let y = 0; y < document.body.scrollHeight; y += 200) {"
            " scrollTo(0, y); await new Promise(requestAnimationFrame); } }"
        )
        settled(page)
        assert page.evaluate("Cadis.rendered") == drawn
        page.evaluate(
            "() => { const slider = document.querySelector('#round');"
            " for (let n = 0; n < 200; n++) { slider.value = n; slider.dispatchEvent("
            "new Event('input', { bubbles: true })); } }"
        )
        settled(page)
        assert page.evaluate("Cadis.rendered") - drawn <= 4  # matrix and weights, once or twice


def test_it_can_be_walked_through_by_keyboard(browser: Browser, report: str) -> None:
    with shown(browser, report) as page:
        page.keyboard.press("Tab")
        assert "Skip" in page.evaluate("document.activeElement.textContent")
        names = set()
        for _ in range(60):
            page.keyboard.press("Tab")
            names.add(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
        assert {"theme", "measure", "smoothing", "run", "round"} <= names
        unnamed = page.evaluate(
            "[...document.querySelectorAll('input, select, button')].filter(control =>"
            " !control.labels?.length && !control.textContent.trim() &&"
            " !control.getAttribute('aria-label')).length"
        )
        assert unnamed == 0


def order_of(page: Page) -> list[str]:
    """The sections that are shown, from top to bottom."""
    found: list[str] = page.evaluate(
        "[...document.querySelectorAll('section')].filter(one => !one.hidden).map(one => one.id)"
    )
    return found


def test_first_come_the_answer_and_one_chart_then_the_tables(browser: Browser, report: str) -> None:
    with shown(browser, report) as page:
        assert order_of(page)[:3] == ["answer", "accuracy", "tables"]
        assert page.locator("#answer table").count() == 0
        assert page.locator("#tables table").count() > 1
        links = page.locator("#sections li:visible").all_inner_texts()
        assert links[:3] == ["Answer", "Accuracy", "Tables"]
        assert not page.locator("#over-rounds").is_visible()  # nobody gave speeds
        assert page.locator("#accuracy h2").inner_text() == "Accuracy over rounds"


def test_of_a_sweep_the_one_chart_is_over_its_parameters(browser: Browser, tmp_path: Path) -> None:
    address = report_of(write_sweep(tmp_path / "sweep", "threshold=0.6,0.7", rounds=2))
    with shown(browser, address) as page:
        assert order_of(page)[:4] == ["answer", "sweep", "tables", "accuracy"]

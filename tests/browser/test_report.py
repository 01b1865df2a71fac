from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from browser_support import get_label, get_pixels, open_page, wait_for_drawing, write_report_page
from cadis.algorithm.methods import CADIS
from cadis.server import RoundRecord
from fabricated import add_clock, add_metrics, change_clusters, write_run, write_study, write_sweep

LEVELS = {"fedavg": 0.6, "cadis": 0.9}
CHARTS = ["accuracy", "federation", "matrix", "weights", "flow", "confusion-0", "confusion-1",
          "fairness", "fairness-rounds", "convergence", "time"]  # fmt: skip


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write a report of two methods, two seeds and 200 rounds, with names that need escaping."""
    path = tmp_path_factory.mktemp("study")
    return write_report_page(write_study(path, LEVELS, 2, rounds=200, clients=40))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_every_chart_is_drawn_and_nothing_is_wider_than_the_screen(
    browser: Browser, report: str, width: int, scheme: str
) -> None:
    with open_page(browser, report, width, color_scheme=scheme) as page:
        page.evaluate("Cadis.redraw(true)")
        for name in CHARTS:
            assert page.evaluate(f"Cadis.charts['chart-{name}'].getWidth()") > 100
            assert len(get_label(page, f"chart-{name}")) > 20
            assert page.locator(f"#chart-{name}").get_attribute("role") == "img"
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        assert page.locator("h1").inner_text().startswith("digits: 40 clients")
        assert "CADIS is better than FedAvg" in page.locator(".sentence").inner_text()


def test_dark_and_light_follow_the_system_and_the_reader(browser: Browser, report: str) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    with open_page(browser, report, color_scheme="light") as page:
        light, drawn = page.evaluate(background), get_pixels(page, "chart-accuracy")
        page.emulate_media(color_scheme="dark")
        page.wait_for_function(f"() => {background} !== '{light}'")
        wait_for_drawing(page)
        assert get_pixels(page, "chart-accuracy") != drawn  # charts follow
        page.select_option("#theme", "light")
        page.wait_for_function(f"() => {background} === '{light}'")


def test_the_slider_changes_the_matrix_by_keyboard(browser: Browser, report: str) -> None:
    with open_page(browser, report) as page:
        at_the_end = get_pixels(page, "chart-matrix")
        weights = get_pixels(page, "chart-weights")
        page.locator("#round").focus()
        page.keyboard.press("Home")
        wait_for_drawing(page)
        assert page.locator("#round").get_attribute("aria-valuetext") == "round 1"
        at_the_beginning = get_pixels(page, "chart-matrix")
        assert at_the_beginning != at_the_end
        assert get_pixels(page, "chart-weights") != weights
        page.check("#order-found")
        wait_for_drawing(page)
        page.keyboard.press("Tab")
        page.select_option("#run", index=1)
        wait_for_drawing(page)
        assert get_pixels(page, "chart-matrix") != at_the_beginning


def test_smoothing_and_metric_change_the_lines_and_the_axis(browser: Browser, report: str) -> None:
    axis = "Cadis.charts['chart-accuracy'].getOption()"
    with open_page(browser, report) as page:
        smooth = get_pixels(page, "chart-accuracy")
        assert page.evaluate(f"{axis}.yAxis[0].name") == "accuracy, mean of 10 rounds"
        assert page.evaluate(f"{axis}.xAxis[0].min") == 1  # the first round
        page.locator("#smoothing").fill("1")
        wait_for_drawing(page)
        rough = get_pixels(page, "chart-accuracy")
        assert rough != smooth
        page.select_option("#metric", "rare")
        wait_for_drawing(page)
        assert get_pixels(page, "chart-accuracy") != rough
        assert page.evaluate(f"{axis}.yAxis[0].name") == "accuracy on rare classes"


def test_task_metrics_can_be_selected(browser: Browser, tmp_path: Path) -> None:
    address = write_report_page(write_study(tmp_path, LEVELS, 2, change_record=add_metrics))
    with open_page(browser, address) as page:
        accuracy = get_pixels(page, "chart-accuracy")
        chosen = page.locator("#metric option").all_inner_texts()
        assert chosen == [
            "accuracy on all classes", "accuracy on rare classes", "AUC", "balanced accuracy",
        ]  # fmt: skip
        page.select_option("#metric", "metric-auc")
        wait_for_drawing(page)
        assert get_pixels(page, "chart-accuracy") != accuracy
        label = get_label(page, "chart-accuracy")
        assert label.startswith("AUC over 12 rounds. At the end: FedAvg 0.")
        assert "Further metrics" in page.locator("#tables").inner_text()


def test_accuracy_is_shown_over_simulated_time(browser: Browser, tmp_path: Path) -> None:
    address = write_report_page(
        write_study(tmp_path, LEVELS, 2, change_record=add_clock, speeds="10:1000")
    )
    with open_page(browser, address) as page:
        over_rounds = get_pixels(page, "chart-accuracy")
        page.check("#over-time")
        wait_for_drawing(page)
        assert get_pixels(page, "chart-accuracy") != over_rounds
        label = get_label(page, "chart-accuracy")
        assert label.startswith("Accuracy on all classes over 120 simulated seconds. At the end: ")
        assert page.locator("#accuracy h2").inner_text() == "Accuracy over simulated time"
        assert page.locator("#over-rounds").is_visible()


def test_a_run_that_reports_clusters_only_has_a_matrix(browser: Browser, tmp_path: Path) -> None:
    def keep_clusters(record: RoundRecord) -> RoundRecord:
        return replace(record, report={"clusters": record.report["clusters"]})

    address = write_report_page(
        write_run(tmp_path / "run", CADIS(), rounds=6, change_record=keep_clusters)
    )
    with open_page(browser, address) as page:
        assert "CADIS" in page.locator("#verdict").inner_text()
        assert get_pixels(page, "chart-matrix")
        text = page.locator("#clusters").inner_text()
        assert "in which they were in the same cluster" in text
        assert "threshold" not in text


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_bars_of_the_confidence_are_below_the_columns(
    browser: Browser, tmp_path: Path, width: int, scheme: str
) -> None:
    address = write_report_page(
        write_run(tmp_path / "run", CADIS(), rounds=40, change_record=change_clusters)
    )
    with open_page(browser, address, width, color_scheme=scheme) as page:
        assert get_pixels(page, "chart-flow")
        chart = "Cadis.charts['chart-flow']"
        boxes = page.evaluate(
            "(series => series.getGraph().nodes.map(node => ({id: node.id, middle: "
            "series.layoutInfo.x + node.getLayout().x + node.getLayout().dx / 2})))"
            f"({chart}.getModel().getSeriesByIndex(0))"
        )
        for depth in range(7):
            middle = page.evaluate(f"{chart}.convertToPixel({{gridIndex: 0}}, [{depth}, 0])[0]")
            column = [box["middle"] for box in boxes if box["id"].startswith(f"{depth}/")]
            assert column == pytest.approx([middle] * len(column), abs=0.5)
        bars = page.evaluate(f"{chart}.getOption().series[1].data.map(bar => bar.itemStyle.color)")
        surface = page.evaluate("Cadis.colors().surface")
        assert [color == surface for color in bars] == [True] * 3 + [False] * 4
        absent = [box["id"] for box in boxes if box["id"].endswith("absent")]
        assert absent == ["5/1/absent", "6/1/absent"]  # after round 12, in rounds 22 and 40
        label = get_label(page, "chart-flow")
        assert label.endswith(
            "3 in round 40. Confidence: 0.20, 0.20, 0.20, 0.90, 0.90, 0.90, 0.90."
        )
        text = page.locator("#clusters").inner_text()
        assert "Pale: clients that have been absent for long" in text
        assert "an empty bar means that it found none" in text


def test_scrolling_does_not_redraw_charts(browser: Browser, report: str) -> None:
    """Each chart is drawn once, and a fast slider skips rounds."""
    with open_page(browser, report) as page:
        page.evaluate("Cadis.redraw(true)")
        wait_for_drawing(page)
        drawn = page.evaluate("Cadis.rendered")
        page.evaluate(
            "async () => { for (let y = 0; y < document.body.scrollHeight; y += 200) {"
            " scrollTo(0, y); await new Promise(requestAnimationFrame); } }"
        )
        wait_for_drawing(page)
        assert page.evaluate("Cadis.rendered") == drawn
        page.evaluate(
            "() => { const slider = document.querySelector('#round');"
            " for (let n = 0; n < 200; n++) { slider.value = n; slider.dispatchEvent("
            "new Event('input', { bubbles: true })); } }"
        )
        wait_for_drawing(page)
        assert page.evaluate("Cadis.rendered") - drawn <= 4  # matrix and weights, once or twice


def test_all_controls_can_be_used_by_keyboard(browser: Browser, report: str) -> None:
    with open_page(browser, report) as page:
        page.keyboard.press("Tab")
        assert "Skip" in page.evaluate("document.activeElement.textContent")
        names = set()
        for _ in range(60):
            page.keyboard.press("Tab")
            names.add(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
        assert {"theme", "metric", "smoothing", "run", "round"} <= names
        unnamed = page.evaluate(
            "[...document.querySelectorAll('input, select, button')].filter(control =>"
            " !control.labels?.length && !control.textContent.trim() &&"
            " !control.getAttribute('aria-label')).length"
        )
        assert unnamed == 0


def list_sections(page: Page) -> list[str]:
    """Return the ids of the visible sections, from top to bottom."""
    found: list[str] = page.evaluate(
        "[...document.querySelectorAll('section')].filter(one => !one.hidden).map(one => one.id)"
    )
    return found


def test_the_verdict_and_one_chart_come_before_the_tables(browser: Browser, report: str) -> None:
    with open_page(browser, report) as page:
        assert list_sections(page)[:3] == ["verdict", "accuracy", "tables"]
        assert page.locator("#verdict table").count() == 0
        assert page.locator("#tables table").count() > 1
        links = page.locator("#sections li:visible").all_inner_texts()
        assert links[:3] == ["Verdict", "Accuracy", "Tables"]
        assert not page.locator("#over-rounds").is_visible()  # clients have no speeds
        assert page.locator("#accuracy h2").inner_text() == "Accuracy over rounds"


def test_the_first_chart_of_a_sweep_is_over_its_parameters(
    browser: Browser, tmp_path: Path
) -> None:
    address = write_report_page(write_sweep(tmp_path / "sweep", "threshold=0.6,0.7", rounds=2))
    with open_page(browser, address) as page:
        assert list_sections(page)[:4] == ["verdict", "sweep", "tables", "accuracy"]

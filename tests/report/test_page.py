import base64
import gc
import json
import re
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cadis.algorithm.methods import CADIS
from cadis.analysis import RunData, read_results, replay_frames
from cadis.report import write_report
from cadis.report.page.assembly import SCRIPTS
from cadis.report.page.content import make_page_data
from cadis.store import RunFolder, StudyFolder, adjusted_rand_index
from fabricated import (
    add_clock,
    add_metrics,
    change_clusters,
    drop_most_tests,
    write_run,
    write_study,
)

MEGABYTE = 1_000_000
LEVELS = {"fedavg": 0.6, "cadis": 0.9}


def make_page(folder: RunFolder | StudyFolder) -> dict[str, Any]:
    """Return the data of the page of a run or study, checked to be valid JSON."""
    data = make_page_data(read_results([folder.path]))
    json.dumps(data, allow_nan=False)
    return data


def test_the_page_is_one_file_without_requests(tmp_path: Path) -> None:
    folder = write_study(tmp_path, LEVELS, 2)
    page = write_report(read_results([folder.path]), tmp_path / "report.html").read_text()
    ours = re.sub(r"<script>\s*/\*.*?Apache.*?</script>", "", page, count=1, flags=re.DOTALL)
    assert len(ours) < len(page) - MEGABYTE  # ECharts, whose comments name its home
    assert not re.search(r"(src|href)=[\"']?https?:", ours)
    assert "default-src 'none'" in page
    assert "<!--" not in ours.replace("<!doctype", "")
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', ours, re.DOTALL)
    assert data is not None
    assert "<" not in data[1]  # a class is called <img src=x onerror=alert(1)>
    assert json.loads(data[1])["federation"]["classes"][-1].startswith("<img")


def test_every_script_is_bundled() -> None:
    assets = Path(__import__("cadis.report.page").report.page.__file__).parent / "assets"
    assert {path.name for path in assets.glob("*.js")} == set(SCRIPTS)


def test_five_methods_by_five_seeds_by_500_rounds_stay_below_5_megabytes(tmp_path: Path) -> None:
    levels = {"fedavg": 0.6, "fedprox": 0.6, "fedfa": 0.7, "feddyn": 0.5, "cadis": 0.9}
    folder = write_study(tmp_path / "study", levels, 5, rounds=500, clients=100)
    page = write_report(read_results([folder.path]), tmp_path / "report.html")
    assert page.stat().st_size < 5 * MEGABYTE


def test_sections_follow_the_records(tmp_path: Path) -> None:
    folder = write_study(tmp_path, LEVELS | {"singleset": 1.0}, 2)
    data, run_data = make_page(folder), read_results([folder.path]).groups[1].runs[0]
    assert [(m["name"], m["baseline"], m["reference"]) for m in data["methods"]] == [
        ("FedAvg", True, False), ("CADIS", False, False), ("SingleSet", False, True),
    ]  # fmt: skip
    run = data["accuracy"]["runs"][2]
    assert (run["method"], run["seed"]) == (1, 0)
    assert run["all"] == [round(r.accuracy or 0, 4) for r in run_data.history]
    assert data["confusion"]["seeds"][0]["matrices"][1]["counts"] == run_data.summary["confusion"]
    assert data["confusion"]["seeds"][0]["rare"] == [3, 4]
    fair = data["fairness"]["runs"][2]
    assert fair["rounds"] == [5, 10]
    clients = [a for a in run_data.history[9].client_accuracy or [] if a is not None]
    assert fair["last"] == pytest.approx(clients, abs=1e-4)
    assert fair["mean"][1] == pytest.approx(np.mean(clients), abs=1e-5)
    assert fair["deviation"][1] == pytest.approx(np.std(clients), abs=1e-5)
    assert data["time"]["methods"][0]["train"] == 0.5
    assert ["rounds", "12"] in data["setup"]["options"]
    assert data["sweep"] is None


def test_rounds_and_clients_without_a_test_are_not_on_the_page(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", CADIS(), rounds=12, change_record=drop_most_tests)
    page, (run_data,) = make_page(folder), read_results([folder.path]).runs
    shown = page["accuracy"]["runs"][0]["all"]
    assert [n for n, value in enumerate(shown, start=1) if value is not None] == [4, 8, 12]
    fair, ids = page["fairness"]["runs"][0], run_data.federation["clients"]
    expected = run_data.history[9].client_accuracy or []
    assert fair["clients"] == [str(ids[n]["id"]) for n in (2, 5)]
    assert fair["last"] == pytest.approx([expected[2], expected[5]], abs=1e-4)
    assert fair["mean"][1] == pytest.approx(((expected[2] or 0) + (expected[5] or 0)) / 2, abs=1e-5)
    assert fair["sample"] == "2 of 12 clients"
    assert any("measured for 2 of 12 clients" in sentence for sentence in page["verdict"]["notes"])


def test_task_metrics_are_on_the_page(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", CADIS(), rounds=3, change_record=add_metrics)
    section = make_page(folder)["accuracy"]
    assert section["metrics"] == {"auc": "AUC", "balanced_accuracy": "balanced accuracy"}
    expected = [record.metrics["auc"] or 0.0 for record in folder.read_history()]
    assert section["runs"][0]["metrics"]["auc"] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("speeds", ["", "10:1000"])
def test_simulated_time_is_on_the_page_if_speeds_are_given(speeds: str, tmp_path: Path) -> None:
    data = make_page(write_study(tmp_path, LEVELS, 2, change_record=add_clock, speeds=speeds))
    clocks = [run["clock"] for run in data["accuracy"]["runs"]]
    captions = [table["caption"] for table in data["verdict"]["tables"]]
    assert any("Simulated seconds to reach" in caption for caption in captions) is bool(speeds)
    if not speeds:
        assert (data["accuracy"]["times"], clocks) == (None, [[]] * 4)
        return
    times = data["accuracy"]["times"]
    assert (times["at"][0], times["at"][-1], times["logarithmic"]) == (10, 120, False)
    assert clocks == [[10.0 * number for number in range(1, 13)]] * 4
    assert any("All rounds together: FedAvg 120, CADIS 120." in n for n in data["verdict"]["notes"])


def test_the_matrix_of_a_frame_equals_that_of_the_server(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", CADIS(), rounds=9)
    run_data = RunData.read(folder)
    (run,) = make_page(folder)["clusters"]["runs"]
    assert run["rounds"] == list(range(1, 10))
    order = [int(name) for name in run["clients"]]
    for frame in replay_frames(run_data.history, {4, 9}, 0.2):
        index = run["rounds"].index(frame.record.round)
        packed = np.frombuffer(base64.b64decode(run["q"][index]), dtype=np.uint8)
        row = {client: number for number, client in enumerate(frame.clients)}
        pairs = [(i, j) for i in range(len(order)) for j in range(i + 1, len(order))]
        assert len(packed) == len(pairs)
        for byte, (i, j) in zip(packed, pairs, strict=True):
            if order[i] in row and order[j] in row:
                q = frame.q[row[order[i]], row[order[j]]]
                assert (byte == 255) == bool(q.isnan())
                assert q.isnan() or abs(int(byte) / 254 - float(q)) < 1 / 254
            else:
                assert byte == 255
        found = [run["found"][index][order.index(int(c))] for c in frame.clients]
        assert adjusted_rand_index(found, frame.clusters.tolist()) == 1  # numbers may differ
        weights = {order[int(at)]: weight for at, weight, _ in run["weights"][index]}
        expected = dict(zip(frame.record.participants, frame.record.weights, strict=True))
        assert weights == pytest.approx(expected, abs=1e-4)
    assert run["agreement"][-1] == run_data.summary["cluster_agreement"]


def test_many_clients_are_sampled_evenly(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", CADIS(), rounds=90, clients=300)
    (run,) = make_page(folder)["clusters"]["runs"]
    assert (len(run["clients"]), run["num_clients"]) == (120, 300)
    assert set(run["true"]) == {0, 1, 2}
    assert len(base64.b64decode(run["q"][0])) == 120 * 119 // 2


def test_the_page_of_very_many_clients_is_small(tmp_path: Path) -> None:
    path = tmp_path / "run"
    folder = write_run(path, CADIS(), rounds=5, finished=False, clients=600, per_round=300)
    results = read_results([folder.path])
    page = write_report(results, tmp_path / "report.html")
    assert page.stat().st_size < 2 * MEGABYTE  # of which ECharts has more than one
    data = make_page_data(results)
    (run,) = data["clusters"]["runs"]
    assert (len(run["clients"]), run["num_clients"], run["sampled"]) == (120, 600, True)
    assert set(run["true"]) == {0, 1, 2}
    for weights, others in zip(run["weights"], run["others"], strict=True):
        assert len(weights) <= 120
        assert len(weights) + others["count"] == 300
        total = sum(weight for _, weight, _ in weights) + others["weight"]
        assert total == pytest.approx(1, abs=2e-3)
        assert others["clusters"] == 3
    (owned,) = data["federation"]["seeds"]
    assert (len(owned["clients"]), owned["num_clients"], owned["clusters"]) == (120, 600, 3)
    assert len(owned["samples"]) == len(owned["cluster"]) == 120
    assert owned["range"] == [12, 18]
    assert len(data["fairness"]["runs"][0]["last"]) == 600
    assert data["convergence"]["runs"][0]["sample"].startswith("120 of ")


def test_cached_data_are_freed_with_their_run(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", CADIS(), rounds=2)
    results = read_results([folder.path])
    first = make_page_data(results)["clusters"]["runs"][0]
    assert make_page_data(results)["clusters"]["runs"][0] is first
    run_data = weakref.ref(results.runs[0])
    del results
    gc.collect()
    assert run_data() is None


def test_data_that_are_not_measured_have_no_section(tmp_path: Path) -> None:
    data = make_page(write_run(tmp_path / "run", CADIS(), rounds=1, finished=False))
    assert {data[name] for name in ("confusion", "fairness", "convergence")} == {None}
    assert data["clusters"]["runs"][0]["threshold"] == pytest.approx([0.7])


def test_flow_has_the_confidence_and_the_last_rounds_of_clients_that_left(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", CADIS(), rounds=40, change_record=change_clusters)
    (run,) = make_page(folder)["clusters"]["runs"]
    flow = run["flow"]
    assert flow["rounds"] == [1, 2, 3, 6, 12, 22, 40]  # 40 ** (n / 6), rounded
    assert flow["confidence"] == [0.2, 0.2, 0.2, 0.9, 0.9, 0.9, 0.9]
    assert run["last"] == [None] * 6 + [12] * 4 + [None] * 2
    assert [set(found[10:]) == {-1} for found in flow["found"]] == [True] * 4 + [False] * 3

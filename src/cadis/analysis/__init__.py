"""What runs say: measures, statistics, the similarity matrix over time. Reads run folders only."""

from cadis.analysis.answer import answer, details
from cadis.analysis.checking import naming
from cadis.analysis.clock import at_times, clocks_of, time_axis
from cadis.analysis.comparison import HEADLINE, SIGNIFICANT, Comparison, RoundsTo
from cadis.analysis.finding import is_result
from cadis.analysis.identity import steady
from cadis.analysis.matrices import (
    Convergence,
    Frame,
    convergence,
    error,
    frames,
    growing,
    some_of,
    spread_rounds,
)
from cadis.analysis.own_data import OWN_TEST_DATA, OWN_TRAINING_DATA
from cadis.analysis.reading import read_folder, read_results
from cadis.analysis.results import Group, Results
from cadis.analysis.rivals import Cell
from cadis.analysis.run_data import RunData, headline_of
from cadis.analysis.scores import (
    ACCURACY,
    LAST_ROUNDS,
    MEASURE,
    MEASURES,
    Measure,
    Scores,
    task_measure,
    with_article,
)
from cadis.analysis.statistics import PairedTest, Spread, holm, paired_test
from cadis.runs.measures import metric_words
from cadis.runs.sampling import SHOWN, sample

__all__ = [
    "ACCURACY",
    "HEADLINE",
    "LAST_ROUNDS",
    "MEASURE",
    "MEASURES",
    "OWN_TEST_DATA",
    "OWN_TRAINING_DATA",
    "SHOWN",
    "SIGNIFICANT",
    "Cell",
    "Comparison",
    "Convergence",
    "Frame",
    "Group",
    "Measure",
    "PairedTest",
    "Results",
    "RoundsTo",
    "RunData",
    "Scores",
    "Spread",
    "answer",
    "at_times",
    "clocks_of",
    "convergence",
    "details",
    "error",
    "frames",
    "growing",
    "headline_of",
    "holm",
    "is_result",
    "metric_words",
    "naming",
    "paired_test",
    "read_folder",
    "read_results",
    "sample",
    "some_of",
    "spread_rounds",
    "steady",
    "task_measure",
    "time_axis",
    "with_article",
]

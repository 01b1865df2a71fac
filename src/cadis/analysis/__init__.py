"""What runs say: measures, statistics, the similarity matrix over time. Reads run folders only."""

from cadis.analysis.comparison import HEADLINE, Comparison, RoundsTo
from cadis.analysis.consistency import naming
from cadis.analysis.head_probe import HeadProbe, Panel
from cadis.analysis.metrics import (
    ACCURACY,
    LAST_ROUNDS,
    MEASURE,
    MEASURES,
    Measure,
    Scores,
    at_times,
    task_measure,
    time_axis,
    with_article,
)
from cadis.analysis.partition_summary import PartitionSummary, describe_federation
from cadis.analysis.reading import is_result, read_folder, read_results
from cadis.analysis.results import Group, Results
from cadis.analysis.run_data import OWN_TEST_DATA, OWN_TRAINING_DATA, RunData, headline_of
from cadis.analysis.similarity import Frame, error, frames, growing, some_of, spread_rounds, steady
from cadis.analysis.statistics import PairedTest, Spread, holm, paired_test
from cadis.analysis.verdict import answer, details

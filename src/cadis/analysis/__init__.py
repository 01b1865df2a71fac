"""Read stored runs and analyze them: metrics, statistics, comparisons, similarity over rounds."""

from cadis.analysis.comparison import RANKING_METRIC, Comparison, TimeToTarget
from cadis.analysis.consistency import convert_read_errors
from cadis.analysis.head_probe import HeadProbe, ProbedModel
from cadis.analysis.metrics import (
    ACCURACY,
    LAST_ROUNDS,
    METRICS,
    Metric,
    Scores,
    add_article,
    make_task_metric,
    make_time_axis,
    resample_at_times,
)
from cadis.analysis.participation import find_departures
from cadis.analysis.partition_summary import PartitionSummary, describe_federation
from cadis.analysis.reading import is_result_folder, read_folder, read_results
from cadis.analysis.results import Group, Results
from cadis.analysis.run_data import OWN_TEST_DATA, OWN_TRAINING_DATA, RunData, get_main_metric
from cadis.analysis.similarity import (
    ClusterFrame,
    align_cluster_labels,
    compute_matrix_error,
    format_sample_size,
    replay_frames,
    replay_matrices,
    select_rounds,
)
from cadis.analysis.statistics import PairedTest, Spread, holm, paired_test
from cadis.analysis.verdict import explain_verdict, write_verdict

"""MLflow: a server of yours, or a database beside the runs."""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import time
from typing import Any, ClassVar

from cadis.errors import RunError
from cadis.server import RoundRecord
from cadis.store import StudyFolder
from cadis.trackers.scalars import flatten, summary_scalars
from cadis.trackers.tracker import Logged, Tracker, need

_PARAMETERS_AT_ONCE = 100
"""As many as MLflow takes in one request."""


class MLflow(Tracker):
    """Keeps runs in the experiment "cadis".

    They go where ``MLFLOW_TRACKING_URI`` says; else into the database ``mlruns/mlflow.db`` beside
    the run's folder. MLflow's older store of plain files refuses to work unless it is forced to.
    """

    name: ClassVar[str] = "mlflow"

    def _connect(self) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read when it is imported
        self._mlflow = need("mlflow")
        self._uri = os.environ.get("MLFLOW_TRACKING_URI", "")
        if not self._uri:
            need("mlflow.store.tracking.sqlalchemy_store")  # a part of the package wants more
        self._client: Any = None  # while a run is open

    def log(
        self, record: RoundRecord, rare_classes: Sequence[int], class_names: Sequence[str]
    ) -> None:
        """Keep a finished round."""
        with self._explain_errors():
            self._open()
            super().log(record, rare_classes, class_names)

    def finish(self, summary: Mapping[str, Any], figures: Sequence[Path]) -> None:
        """Keep the summary's numbers as metrics, and the pictures as artifacts."""
        with self._explain_errors():
            self._open()
            super().finish(summary, figures)

    def close(self) -> None:
        """Mark a run that is not complete as killed; if that fails too, it stays as it is."""
        with suppress(RunError), self._explain_errors():
            super().close()

    def _open(self) -> None:
        """Go on with the run if MLflow knows it, else begin it."""
        if self._client is not None:
            return
        client = self._mlflow.MlflowClient(tracking_uri=self._uri or self._beside())
        if self._logged.id and self._knows(client, self._logged.id):
            client.update_run(self._logged.id, status="RUNNING")
        else:
            tags = {} if self._group is None else {"group": self._group}
            run = client.create_run(self._experiment(client), run_name=self._run_name, tags=tags)
            self._logged = Logged()  # it has nothing of the run yet
            self._remember(id=run.info.run_id)
            make = self._mlflow.entities.Param
            options = [make(key, str(value)) for key, value in flatten(self._options()).items()]
            for start in range(0, len(options), _PARAMETERS_AT_ONCE):
                some = options[start : start + _PARAMETERS_AT_ONCE]
                client.log_batch(run.info.run_id, params=some)
        self._client = client

    def _knows(self, client: Any, run_id: str) -> bool:
        """Whether the run is there: another server may have it, or somebody deleted it."""
        try:
            stage: str = client.get_run(run_id).info.lifecycle_stage
        except self._mlflow.exceptions.MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return False
        return stage == "active"

    def _experiment(self, client: Any) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "cadis")
        found = client.get_experiment_by_name(name)
        if found is not None:
            return str(found.experiment_id)
        artifacts = None if self._uri else (self._store / "artifacts").as_uri()
        return str(client.create_experiment(name, artifact_location=artifacts))

    def _beside(self) -> str:
        self._store.mkdir(parents=True, exist_ok=True)
        logging.getLogger("mlflow.store.db").setLevel(logging.WARNING)  # how it makes its tables
        return f"sqlite:///{(self._store / 'mlflow.db').as_posix()}"

    @property
    def _store(self) -> Path:
        """Beside the run's folder; beside that of the study if the run is part of one."""
        folder = self._folder.resolve()
        studies = (place for place in folder.parents[:2] if StudyFolder(place).holds_study())
        return next(studies, folder).parent / "mlruns"

    def _put(self, values: Mapping[str, float], step: int) -> None:
        now = int(time() * 1000)
        metrics = [self._mlflow.entities.Metric(*pair, now, step) for pair in values.items()]
        self._client.log_batch(self._logged.id, metrics=metrics)

    def _put_summary(self, summary: Mapping[str, Any], figures: Sequence[Path]) -> None:
        self._put(summary_scalars(summary), summary["rounds"])
        for path in figures:
            self._client.log_artifact(self._logged.id, str(path), "figures")

    def _end(self, *, complete: bool) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.set_terminated(self._logged.id, "FINISHED" if complete else "KILLED")

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        """Say in a sentence what MLflow cannot do; then it is not asked again."""
        try:
            yield
        except self._mlflow.exceptions.MlflowException as error:
            self._client = None
            reason = str(error).splitlines()[0].rstrip(".")
            raise RunError(
                f"MLflow failed, and the run was stopped; it can be resumed: {reason}."
            ) from None

"""Tracker for MLflow, on a server or in a local database next to the runs."""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import time
from typing import Any, ClassVar

from cadis._io import check_output, make_private_folder
from cadis.errors import RunError
from cadis.server import RoundRecord
from cadis.store import StudyFolder
from cadis.trackers.scalars import collect_summary_scalars, flatten_options
from cadis.trackers.tracker import Tracker, TrackingState, import_optional

_MAX_PARAMETERS = 100
"""Maximum number of parameters in one request to MLflow."""


class MLflow(Tracker):
    """Logs runs to the experiment in ``MLFLOW_EXPERIMENT_NAME``, by default "cadis".

    The server or database is ``MLFLOW_TRACKING_URI`` if it is set, else ``mlruns/mlflow.db`` next
    to the folder of the run. MLflow's file store is not used, because MLflow rejects it by default.
    """

    name: ClassVar[str] = "mlflow"

    def _connect(self) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # MLflow reads it at import
        self._mlflow = import_optional("mlflow")
        self._uri = os.environ.get("MLFLOW_TRACKING_URI", "")
        if not self._uri:
            import_optional("mlflow.store.tracking.sqlalchemy_store")  # needs further packages
        self._client: Any = None  # set while a run is open

    def log(
        self, record: RoundRecord, rare_classes: Sequence[int], class_names: Sequence[str]
    ) -> None:
        """Log a finished round."""
        with self._explain_errors():
            self._open()
            super().log(record, rare_classes, class_names)

    def finish(self, summary: Mapping[str, Any], figures: Sequence[Path]) -> None:
        """Log the summary as metrics, and the figures as artifacts."""
        with self._explain_errors():
            self._open()
            super().finish(summary, figures)

    def close(self) -> None:
        """Mark a run that is not complete as killed. Errors of MLflow are ignored."""
        with suppress(RunError), self._explain_errors():
            super().close()

    def _open(self) -> None:
        """Continue the run if it exists in MLflow, else create it."""
        if self._client is not None:
            return
        client = self._mlflow.MlflowClient(tracking_uri=self._uri or self._create_local_store())
        if self._state.id and self._run_exists(client, self._state.id):
            client.update_run(self._state.id, status="RUNNING")
        else:
            tags = {} if self._group is None else {"group": self._group}
            run = client.create_run(
                self._get_experiment_id(client), run_name=self._run_name, tags=tags
            )
            self._state = TrackingState()  # nothing is logged to the new run yet
            self._save_state(id=run.info.run_id)
            options = flatten_options(self._options()).items()
            parameters = [self._mlflow.entities.Param(key, str(value)) for key, value in options]
            for start in range(0, len(parameters), _MAX_PARAMETERS):
                batch = parameters[start : start + _MAX_PARAMETERS]
                client.log_batch(run.info.run_id, params=batch)
        self._client = client

    def _run_exists(self, client: Any, run_id: str) -> bool:
        """Return whether the run exists; it may be on another server, or deleted."""
        try:
            stage: str = client.get_run(run_id).info.lifecycle_stage
        except self._mlflow.exceptions.MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return False
        return stage == "active"

    def _get_experiment_id(self, client: Any) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "cadis")
        experiment = client.get_experiment_by_name(name)
        if experiment is not None:
            return str(experiment.experiment_id)
        artifacts = None if self._uri else (self._store_folder / "artifacts").as_uri()
        return str(client.create_experiment(name, artifact_location=artifacts))

    def _create_local_store(self) -> str:
        """Create the folder of the local database, and return the URI of the database."""
        make_private_folder(self._store_folder)
        check_output(self._store_folder / "mlflow.db")
        # Hide the messages about new tables.
        logging.getLogger("mlflow.store.db").setLevel(logging.WARNING)
        return f"sqlite:///{(self._store_folder / 'mlflow.db').as_posix()}"

    @property
    def _store_folder(self) -> Path:
        """Folder ``mlruns`` next to the run, or next to the study that the run is part of."""
        folder = self._folder.resolve()
        studies = (parent for parent in folder.parents[:2] if StudyFolder(parent).has_study())
        return next(studies, folder).parent / "mlruns"

    def _log_scalars(self, values: Mapping[str, float], step: int) -> None:
        now = int(time() * 1000)
        metrics = [self._mlflow.entities.Metric(*pair, now, step) for pair in values.items()]
        self._client.log_batch(self._state.id, metrics=metrics)

    def _log_summary(self, summary: Mapping[str, Any], figures: Sequence[Path]) -> None:
        self._log_scalars(collect_summary_scalars(summary), summary["rounds"])
        for path in figures:
            self._client.log_artifact(self._state.id, str(path), "figures")

    def _close_run(self, *, complete: bool) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.set_terminated(self._state.id, "FINISHED" if complete else "KILLED")

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        """Convert errors of MLflow to a RunError, and stop using the client."""
        try:
            yield
        except self._mlflow.exceptions.MlflowException as error:
            self._client = None
            reason = str(error).splitlines()[0].rstrip(".")
            raise RunError(
                f"MLflow failed: {reason}; the run was stopped, and you can resume it."
            ) from None

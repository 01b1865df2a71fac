"""Everything about an experiment that is no part of its algorithm, and no parameter."""

from dataclasses import dataclass, replace

from cadis.algorithm import names_of
from cadis.engine import EngineSettings
from cadis.errors import CadisError
from cadis.models import MODELS, auto_lr
from cadis.options import RunOptions
from cadis.training import LocalSettings

_DEFAULT_CLIENTS = 20
_DEFAULT_PER_ROUND = 10


@dataclass(frozen=True)
class Settings(RunOptions):
    """The options of a run, and how those that are "auto" are resolved."""

    @property
    def clients_to_deal_to(self) -> int:
        """Return the number of clients that a dataset is split among."""
        return _DEFAULT_CLIENTS if self.clients == "auto" else self.clients

    def resolve_auto(self, num_clients: int, shape: tuple[int, ...]) -> "Settings":
        """Without "auto", once the data are known.

        Args:
            num_clients: how many there are.
            shape: of an input: channels, height and width of a picture, or the numbers in a row.
        """
        model = _fitting_model(shape) if self.model == "auto" else self.model
        return replace(
            self,
            clients=num_clients,
            model=model,
            per_round=self._participants(num_clients),
            lr=auto_lr(MODELS.get(model)) if self.lr == "auto" else self.lr,
        )

    def _participants(self, num_clients: int) -> int:
        """How many clients take part in a round; of a share, at least one."""
        if self.per_round == "auto":
            return min(_DEFAULT_PER_ROUND, num_clients)
        if isinstance(self.per_round, int):
            return self.per_round
        return max(1, int(self.per_round * num_clients + 0.5))

    def for_engine(self) -> EngineSettings:
        """Return the settings of the engine, whose names are those of options, without "auto"."""
        options = vars(self)
        local = {name: options[name] for name in names_of(LocalSettings)}
        shared = {name: options[name] for name in names_of(EngineSettings) if name in options}
        return EngineSettings(**shared, local=LocalSettings(**local))


def _fitting_model(shape: tuple[int, ...]) -> str:
    """The paper's models for its datasets, and whatever is like them; for rows, the simplest."""
    if len(shape) == 1:
        return "mlp"
    if len(shape) != 3:
        raise CadisError(
            f"No model of ours is made for inputs of shape {shape}; name one of your own by "
            "--model FILE.py:FUNCTION."
        )
    channels, height, _ = shape
    if height < 16:
        return "small-cnn"
    if height < 64:
        return "cnn" if channels == 1 else "resnet9"
    return "resnet18"

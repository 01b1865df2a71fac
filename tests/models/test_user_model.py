import sys
from pathlib import Path

import pytest
from torch import nn

from cadis.errors import CadisError
from cadis.models import build_user_model


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("def net(num_classes): return nn.Linear(4, num_classes)", ""),
        ("def net(height, num_classes): return nn.Linear(height, num_classes)", ""),
        ("def net(): return nn.Linear(4, 7)", ""),
        ("class net(nn.Linear):\n def __init__(self): super().__init__(4, 7)", ""),
        ("def net(x): return nn.Linear(4, 7)", "missing 1 required positional argument: 'x'"),
        ("def net(): return 3", "must return an nn.Module, not int"),
        ("def other(): pass", "has no function or class 'net'"),
        ("def net(**sizes): return nn.Linear(sizes['width'], sizes['num_classes'])", ""),
        ("net = nn.Linear(4, 7)", "is a model; name a function or class that returns one"),
        ("net = 3", "is not a function or class that returns a model"),
        ("import nowhere", "could not be imported: ModuleNotFoundError: No module named 'nowhere'"),
        ("def net(:", "could not be imported: SyntaxError"),
        ("raise SystemExit(0)", "could not be imported: SystemExit: 0"),
        ("raise GeneratorExit", "could not be imported: GeneratorExit"),
        ("raise ValueError('a\\nb')", "could not be imported: ValueError: a b"),
        ("def net(): raise SystemExit('no')", "could not build a model: SystemExit: no"),
    ],
)
def test_a_user_model_is_built_or_refused_with_a_reason(
    body: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    module = f"mine_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(f"from torch import nn\n{body}\n")
    sizes = {"channels": 1, "height": 4, "width": 4, "num_features": 16, "num_classes": 7}
    if not sentence:
        model = build_user_model(f"{module}:net", **sizes)
        assert isinstance(model, nn.Linear)
        assert (model.in_features, model.out_features) == (4, 7)
        return
    with pytest.raises(CadisError) as caught:
        build_user_model(f"{module}:net", **sizes)
    assert sentence in str(caught.value)


def test_lazy_layers_are_initialized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    body = "def net(num_classes): return nn.Sequential(nn.Flatten(), nn.LazyLinear(num_classes))"
    (tmp_path / "lazy_net.py").write_text(f"from torch import nn\n{body}\n")
    model = build_user_model("lazy_net:net", channels=3, height=4, width=5, num_classes=7)
    assert model.get_parameter("1.weight").shape == (7, 60)

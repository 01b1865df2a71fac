import sys
from pathlib import Path

import pytest
from torch import nn

from cadis.core import CadisError
from cadis.models import own_model


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("def net(num_classes): return nn.Linear(4, num_classes)", ""),
        (
            "def net(height, num_classes): return nn.Linear(height, num_classes)",
            "",
        ),
        ("def net(): return nn.Linear(4, 7)", ""),
        ("class net(nn.Linear):\n def __init__(self): super().__init__(4, 7)", ""),
        ("def net(x): return nn.Linear(4, 7)", "missing 1 required positional argument: 'x'"),
        ("def net(): return 3", "made a int, not an nn.Module"),
        ("def other(): pass", "has no function or class 'net'"),
        ("net = 3", "has no function or class 'net'"),
        ("import nowhere", "could not be imported: ModuleNotFoundError: No module named 'nowhere'"),
        ("def net(:", "could not be imported: SyntaxError"),
    ],
)
def test_a_model_of_ones_own(
    body: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    module = f"mine_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(f"from torch import nn\n{body}\n")
    facts = {"channels": 1, "height": 4, "width": 4, "num_classes": 7}
    if not sentence:
        model = own_model(f"{module}:net", **facts)
        assert isinstance(model, nn.Linear)
        assert (model.in_features, model.out_features) == (4, 7)
        return
    with pytest.raises(CadisError) as caught:
        own_model(f"{module}:net", **facts)
    assert sentence in str(caught.value)

"""Strategies of hypothesis for odd values, and for content that is almost right."""

import copy
import json
from collections.abc import Callable
from typing import Any, TypeAlias

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

Draw: TypeAlias = Callable[[SearchStrategy[Any]], Any]
"""Draw an example of a strategy."""

_TEXTS = ["", " ", "0", "-1", "1e3", "nan", "auto", "a\nb", "quote \" and \\ and '", "\x7f\x1b[31m"]
_TEXTS += ["\u2028é漢\U0001f600", "\ud800", "\0", "[bold]x[/bold]", "..", "/", "/dev/null"]
WORDS = (*_TEXTS, "x" * 300)
"""Texts that have a meaning somewhere, or that something cannot write."""

_NUMBERS = (0, -1, 2, 3.5, 1e-320, 1e308, 2**31, 2**63, -(2**63) - 1, 10**400)
_PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(_NUMBERS),
    st.floats(),
    st.integers(),
    st.sampled_from(WORDS),
    st.text(st.characters(), max_size=20),
)
ODD = _PLAIN | st.recursive(
    _PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)
"""Values that hardly any option or field is meant to hold."""

_EXTREMES = (b"\x00", b"\xff", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff" * 8, b"-1", b"{")


def mutate_bytes(content: bytes, draw: Draw) -> bytes:
    """Return bytes with some changed, missing, repeated or added."""
    for _ in range(draw(st.sampled_from([1, 2, 5, 20]))):
        start = draw(st.integers(0, len(content)))
        piece = content[start : start + draw(st.sampled_from([1, 4, 16, 200]))]
        ends = [start, start + 1, start + 4, start + len(piece), len(content)]
        end = draw(st.sampled_from(ends))
        new = st.sampled_from([b"", piece, *_EXTREMES]) | st.binary(max_size=200)
        content = content[:start] + draw(new) + content[end:]
    return content


def mutate_json(content: str | bytes, draw: Draw) -> bytes:
    """Return JSON in which one part, anywhere, is another, missing, or there twice."""
    whole = [json.loads(content)]
    holder, key = draw(st.sampled_from(_parts(whole)))
    way = 4 if holder is whole else draw(st.integers(0, 4))
    if way == 0:
        del holder[key]
    elif way == 1 and isinstance(holder, list):
        holder.insert(key, copy.deepcopy(holder[key]))
    elif way == 2 and isinstance(holder, dict):
        holder[draw(st.text(max_size=50))] = holder.pop(key)
    else:
        holder[key] = draw(ODD)
    return json.dumps(whole[0]).encode("utf-8", "surrogatepass")


def _parts(value: Any) -> list[tuple[Any, Any]]:
    """Return all places of a value, each as what holds it and the key or index there."""
    if not isinstance(value, dict | list):
        return []
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    own = [(value, key) for key in keys]
    return own + [part for key in keys for part in _parts(value[key])]

"""Content that is almost right."""

import copy
import json
from random import Random
from typing import Any

ODD: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    3.5,
    0.1,
    1e-320,
    1e308,
    float("inf"),
    float("-inf"),
    float("nan"),
    2**31,
    2**63,
    -(2**63) - 1,
    10**400,
    "",
    " ",
    "0",
    "-1",
    "1e3",
    "nan",
    "auto",
    "a\nb",
    "quote \" and \\ and '",
    "\x00",
    "\x7f\x1b[31m",
    "\u2028é漢\U0001f600",
    "\ud800",
    "[bold]x[/bold]",
    "..",
    "/",
    "/dev/null",
    "x" * 300,
    [],
    [1, 2],
    [[]],
    ["a"],
    {},
    {"a": 1},
    {"": None},
)
_EXTREMES = (b"\x00", b"\xff", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff" * 8, b"-1", b"{")


def mutated(content: bytes, random: Random) -> bytes:
    """Bytes with some changed, missing, repeated or added."""
    result = bytearray(content)
    for _ in range(random.choice([1, 1, 2, 5, 20])):
        place = random.randrange(len(result) + 1)
        size = random.choice([1, 1, 4, 16, 200])
        way = random.randrange(6)
        if way == 0 and place < len(result):
            result[place] ^= 1 << random.randrange(8)
        elif way == 1:
            del result[place : place + size]
        elif way == 2:
            result[place:place] = random.randbytes(size)
        elif way == 3:
            extreme = random.choice(_EXTREMES)
            result[place : place + len(extreme)] = extreme
        elif way == 4:
            result[place:place] = result[place : place + size]
        else:
            del result[place:]
    return bytes(result)


def mutated_json(value: Any, random: Random) -> Any:
    """A value in which one part, anywhere, is another, missing, or there twice."""
    value = copy.deepcopy(value)
    places = list(_places(value))
    if not places:
        return random.choice(ODD)
    holder, key = random.choice(places)
    way = random.randrange(5)
    if way == 0:
        del holder[key]
    elif way == 1 and isinstance(holder, list):
        holder.insert(key, copy.deepcopy(holder[key]))
    elif way == 2 and isinstance(holder, dict):
        holder[str(random.choice(ODD))[:50]] = holder.pop(key)
    else:
        holder[key] = random.choice(ODD)
    return value


def to_json(value: Any) -> bytes:
    """As JSON, whatever it is."""
    return json.dumps(value).encode("utf-8", "surrogatepass")


def _places(value: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        holder = waiting.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        for key in keys:
            found.append((holder, key))
            if isinstance(holder[key], dict | list):
                waiting.append(holder[key])
    return found

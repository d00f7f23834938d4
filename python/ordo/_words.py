"""Constants as words, spelled as the command and a plan's line spell them.

The tables come from the library itself; the Literal types repeat them for type checkers, and
tests/python/test_layout.py holds the two together.
"""

from __future__ import annotations

from typing import Any, Literal

from ._library import Error, lib

DType = Literal["f32", "bf16", "f16"]
Layout = Literal["dense", "packed", "padded"]
Mask = Literal["full", "causal", "causal-top-left"]
Keying = Literal["ordo", "fa2"]
Backend = Literal["default", "ref", "cpu", "cuda", "emulator"]
Order = Literal[
    "default", "ascending", "descending", "shift", "symmetric", "spt", "twin", "spt+tail"
]
Issue = Literal["default", "head", "key"]
Assign = Literal["default", "pinned", "first-free"]
DropoutMode = Literal["sequential", "fused", "overlapped", "pipelined"]
Form = Literal["flash", "apart", "phase", "chain"]
Promise = Literal["repeat", "portable", "batch", "split", "keep-bits", "cut"]

GROUP_WAVES = -1


class Words:
    """One of C's enums: words to numbers and back."""

    def __init__(self, noun: str) -> None:
        name = getattr(lib, f"ordo_{noun}_name")
        self.words: list[str] = []
        # e4m3 is a type of matrix products on a device, which no function here takes.
        while (word := name(len(self.words))) not in (b"unknown", b"e4m3"):
            self.words.append(word.decode())
        self._numbers = {word: number for number, word in enumerate(self.words)}

    def number(self, field: str, word: str) -> int:
        try:
            return self._numbers[word]
        except (KeyError, TypeError):
            expected = ", ".join(self.words[:-1]) + " or " + self.words[-1]
            raise Error("argument", f"{field} {word!r}: expected {expected}") from None

    def word(self, number: int) -> str:
        return self.words[number]


TABLES = {
    noun: Words(noun)
    for noun in (
        "dtype", "layout", "mask", "keying", "backend", "order", "issue", "assign", "dropout_mode",
        "form",
    )
}  # fmt: skip


_MASKS: dict[Any, Mask] = {
    None: "full",
    False: "full",
    True: "causal",
    "bottom-right": "causal",
    "top-left": "causal-top-left",
}


def mask_of(causal: Any) -> Mask:
    """The mask that an argument `causal` stands for."""
    try:
        return _MASKS[causal]
    except (KeyError, TypeError):
        raise Error(
            "argument", f"causal {causal!r}: expected True, False, 'bottom-right' or 'top-left'"
        ) from None


def promises(bits: int) -> tuple[Promise, ...]:
    """The levels whose bits are set, in the order of docs/guide/promise.md."""
    levels: list[Promise] = []
    for level in range(6):
        if bits >> level & 1:
            levels.append(lib.ordo_promise_name(1 << level).decode())
    return tuple(levels)


def group_number(group: int | str) -> int | str:
    """A group size, or "waves"."""
    return GROUP_WAVES if group == "waves" else group


def group_word(group: int) -> int | Literal["waves"]:
    return "waves" if group == GROUP_WAVES else group

from __future__ import annotations

import numpy as np
import pytest

from stages.text.characters import (
    ALPHABETIC,
    BULLET,
    BULLETS,
    CLASS_SHIFT,
    CODE_POINTS,
    DECIMAL,
    IGNORED,
    JOINED,
    LETTER,
    MARK,
    SEPARATOR,
    SINGLE,
    WHITESPACE,
    character_table,
    whitespace_bytes,
)
from tests.stages.text.plain import kind_of, lower_case

KINDS = {
    "letter": LETTER,
    "single": SINGLE,
    "joined": JOINED,
    "mark": MARK,
    "ignored": IGNORED,
    "space": SEPARATOR,
    "sign": SEPARATOR,
}


def expected(point: int) -> int:
    character = chr(point)
    entry = ord(lower_case(character)) | KINDS[kind_of(character)] << CLASS_SHIFT
    entry |= WHITESPACE * character.isspace() | ALPHABETIC * character.isalpha() | DECIMAL * character.isdecimal()
    return entry | BULLET * (character in BULLETS)


def test_every_code_point_is_what_python_says() -> None:
    # Far up, where a version of Unicode adds whole blocks if anything, a sample of each will do.
    points = [*range(0x34000), *range(0x34000, CODE_POINTS, 17), *range(0xE0000, 0xE0200)]
    table = character_table()
    wrong = [hex(point) for point in points if table[point] != expected(point)]
    assert not wrong


@pytest.mark.parametrize(
    ("characters", "kind"),
    [
        ("aé٣9_हㄱ한ʼ", LETTER),
        ("中あアー〇ꀀ𠀀ﾊ", SINGLE),
        ("กລကកꪀ", JOINED),
        ("๒៣", LETTER),  # numbers of those scripts are written like any other
        ("\u0301\u0e34\ufe0f", MARK),
        ("\u00ad\u200d\u2060\ufeff", IGNORED),
        ("\u200b .-…€🙂\x00\u0378\ue000", SEPARATOR),
    ],
)
def test_classes(characters: str, kind: int) -> None:
    assert [int(character_table()[ord(character)]) >> CLASS_SHIFT for character in characters] == [kind] * len(
        characters
    )


def test_tables_cannot_be_written() -> None:
    assert not character_table().flags.writeable
    assert character_table().shape == (CODE_POINTS,)
    assert not whitespace_bytes().flags.writeable


def test_bytes_of_white_space() -> None:
    spaces = [chr(point).encode() for point in range(CODE_POINTS) if chr(point).isspace()]
    kinds = whitespace_bytes()
    for byte in range(256):
        begun = [space for space in spaces if space[0] == byte]
        assert kinds[byte] == (0 if not begun else 1 if byte < 0x80 else 2)
    assert np.count_nonzero(kinds) > 10

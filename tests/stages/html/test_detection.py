"""Charsets of bytes that name none."""

from __future__ import annotations

import base64
import codecs
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st

from stages.html.charset import charset_of, codec_of, decode
from stages.html.detection import detect, is_utf8

PAGES = Path(__file__).parents[4] / "shared" / "data" / "html" / "charset_pages.jsonl.zst"
KOREAN = "강가에 아주 작은 헌책방이 있습니다. 주인은 매일 아침 여덟 시에 문을 엽니다. 창문을 닦고 새 책을 놓습니다. "
RUSSIAN = "Съешь же ещё этих мягких французских булок, да выпей чаю. "
JAPANESE = "川のほとりに小さな古本屋があります。店主は毎朝八時に店を開け、窓を拭き、新しい本を並べます。"


@pytest.mark.parametrize(
    ("text", "codec"),
    [
        (KOREAN, "utf-8"),
        (KOREAN, "euc_kr"),
        (KOREAN, "cp949"),
        (KOREAN, "johab"),
        (KOREAN, "iso2022_kr"),
        (RUSSIAN * 4, "utf-8"),
        (RUSSIAN * 4, "cp1251"),
        (RUSSIAN * 4, "koi8-r"),
        (RUSSIAN * 4, "cp855"),
        (RUSSIAN * 4, "mac-cyrillic"),
        (JAPANESE, "shift_jis"),
        (JAPANESE, "euc_jp"),
        (JAPANESE, "iso2022_jp"),
        (f"<p>{JAPANESE}</p>\n", "utf-16-le"),
        (f"<p>{RUSSIAN}</p>\n", "utf-16-be"),
        ("plain words", "utf-16-le"),
        ("plain words", "utf-32-be"),
        (KOREAN, "utf-32-le"),
        ("plain words", "ascii"),
        ("", "ascii"),
    ],
)
def test_what_is_written_in_a_charset_is_read_in_it(text: str, codec: str) -> None:
    body = text.encode(codec)
    assert decode(body, charset_of(body, None, html=False)) == text


@given(st.binary(max_size=300) | st.text(max_size=80).map(str.encode))
@example(b"\x1b$)C nothing of ISO-2022")
@example(b"\x81")
def test_every_answer_has_a_decoder_and_utf8_is_never_said_of_other_bytes(body: bytes) -> None:
    found = detect(body)
    codecs.lookup(found)
    decode(body, found)
    if found == "utf-8":
        assert is_utf8(body)
        damage = body.decode("utf-8", "replace").count("\ufffd") - body.count(b"\xef\xbf\xbd")
        beyond = sum(char > "\x7f" for char in body.decode("utf-8", "ignore"))
        assert damage == 0 or 20 * damage <= beyond or (damage == 1 and _is_cut(body))


def _is_cut(body: bytes) -> bool:
    return any(_is_whole(body[: len(body) - left]) for left in (1, 2, 3))


def _is_whole(body: bytes) -> bool:
    try:
        body.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


@given(st.text(min_size=1).filter(lambda text: not text.isascii() and not re.search("\x1b|~{|\0", text)))
def test_utf8_is_utf8_also_where_it_is_cut(text: str) -> None:
    body = text.encode("utf-8", "replace")
    if not body.isascii():
        assert detect(body) == "utf-8"
        assert is_utf8(body[: len(body) - 1]) or text[:-1].isascii()


def test_a_bad_byte_in_much_utf8_is_damage_and_many_are_another_charset() -> None:
    assert detect(KOREAN.encode() + b"\xff" + KOREAN.encode()) == "utf-8"
    assert detect("Grüße an Frau Müller".encode("latin-1")) != "utf-8"
    assert detect(b"caf\xe9").startswith("iso8859")


@pytest.mark.shared_data
def test_real_pages_with_their_declaration_taken_away() -> None:
    if not PAGES.is_file():
        pytest.skip("the pages need the shared data folder beside the checkout")
    with PAGES.open("rb") as raw:
        lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(raw), encoding="utf-8").readlines()
    rows: list[dict[str, Any]] = [json.loads(line) for line in lines]
    wrong = []
    for row in rows:
        # Some labels have a language after the charset.
        label = re.sub(r"-[a-z]{4,}$", "", row["charset"])
        body = base64.b64decode(row["b64"])
        if decode(body, charset_of(body, None, html=False)) != decode(body, codec_of(label) or label):
            wrong.append((row["charset"], charset_of(body, None, html=False)))
    assert len(rows) == 136
    assert len(wrong) <= 4, wrong

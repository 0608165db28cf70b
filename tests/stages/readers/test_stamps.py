from __future__ import annotations

import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.readers.stamps import digest_score

BLOCK = b"HTTP/1.1 200 OK\r\n\r\nbody"
BODY = b"body"


def stamp(content: bytes, algorithm: str = "sha1", base: int = 32) -> str:
    digest = hashlib.new(algorithm, content).digest()
    encode = {16: base64.b16encode, 32: base64.b32encode, 64: base64.b64encode}[base]
    return f"{algorithm}:{encode(digest).decode()}"


@given(st.sampled_from(["md5", "sha1", "sha256", "sha384", "sha512"]), st.sampled_from([16, 32, 64]), st.booleans())
def test_any_algorithm_in_any_base_is_compared(algorithm: str, base: int, is_lower: bool) -> None:
    right, wrong = stamp(BLOCK, algorithm, base), stamp(BODY, algorithm, base)
    if is_lower and base != 64:
        right, wrong = right.lower(), wrong.lower()
    assert digest_score({"warc-block-digest": right}, BLOCK, BODY)[0] == "right"
    assert digest_score({"warc-block-digest": wrong}, BLOCK, BODY)[0] == "wrong block"


@pytest.mark.parametrize("said", ["sha1:", "sha1:!!", "crc32:00", "nothing", "sha1:" + "A" * 31, "sha256:" + "0" * 40])
def test_what_cannot_be_read_is_unknown(said: str) -> None:
    assert digest_score({"warc-payload-digest": said}, BLOCK, BODY)[0] == "unknown"
    both = {"warc-payload-digest": said, "warc-block-digest": stamp(BLOCK)}
    assert digest_score(both, BLOCK, BODY)[0] == "unknown"
    assert digest_score({**both, "warc-block-digest": stamp(b"x")}, BLOCK, BODY)[0] == "wrong block"


def test_a_payload_is_the_body_with_or_without_its_chunks() -> None:
    chunked = b"4\r\nbody\r\n0\r\n\r\n"
    for content in (BODY, chunked):
        assert digest_score({"warc-payload-digest": stamp(content)}, BLOCK, chunked)[0] == "right"
    assert digest_score({"warc-payload-digest": stamp(b"other")}, BLOCK, chunked)[0] == "wrong payload"
    assert digest_score({"warc-payload-digest": stamp(b"x")}, BLOCK, b"4\r\nbody\r\nzz")[0] == "wrong payload"


def test_without_digests_there_is_no_score() -> None:
    assert digest_score({}, BLOCK, BODY)[0] == ""

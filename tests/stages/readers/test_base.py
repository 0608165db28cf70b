from __future__ import annotations

import pickle

import pytest

from stages.readers import Source
from stages.readers.base import FIRST_SECOND, LAST_SECOND, parse_date


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2008-04-30T20:48:25Z", 1209588505),
        ("2008-04-30T20:48:25.123456Z", 1209588505),
        ("2008-04-30t20:48:25z", 1209588505),
        ("2008-04-30T22:48:25+02:00", 1209588505),
        ("2008-04-30T16:18:25-04:30", 1209588505),
        ("2008-04-30T20:18:25-00:30", 1209588505),
        ("20080430204825", 1209588505),
        ("1970-01", 0),
        ("1970", 0),
        ("1970-01-01 00:00:60", 59),
        ("0001-01-01T00:00:00Z", FIRST_SECOND),
        ("9999-12-31T23:59:59Z", LAST_SECOND),
        ("0001-01-01T00:00:00+14:00", None),
        ("9999-12-31T23:59:59-00:01", None),
        ("", None),
        ("yesterday", None),
        ("2008-13-01T00:00:00Z", None),
        ("2008-00-01", None),
        ("2008-02-30", None),
        ("2008-02-29T24:00:00Z", None),
        ("2008-02-29T23:60:00Z", None),
        ("0000-01-01", None),
        ("2008-04-30T20:48:25Z and more", None),
    ],
)
def test_dates(value: str, seconds: int | None) -> None:
    assert parse_date(value) == seconds


def test_a_source_travels() -> None:
    source = Source(index=1, path="a")
    assert pickle.loads(pickle.dumps(source)) == source

from __future__ import annotations

import math
import struct

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from trainer.calc.formats import FORMATS, Format

DTYPES = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp8 e4m3": torch.float8_e4m3fn,
    "fp8 e5m2": torch.float8_e5m2,
}
BY_NAME = {one.name: one for one in FORMATS}


@pytest.mark.parametrize("one", FORMATS, ids=lambda one: one.name)
@given(value=st.floats(width=32))
def test_a_number_becomes_what_torch_makes_of_it(one: Format, value: float) -> None:
    assume(one.infinite or abs(value) <= 464)  # torch saturates beyond
    theirs = torch.tensor(value, dtype=torch.float32).to(DTYPES[one.name]).to(torch.float64).item()
    mine = one.decode(one.encode(value))
    assert mine == theirs or (math.isnan(mine) and math.isnan(theirs))
    assert math.copysign(1, mine) == math.copysign(1, theirs) or math.isnan(mine)


@given(value=st.floats())
def test_fp32_has_the_bits_of_the_processor(value: float) -> None:
    try:
        expected = struct.unpack("<I", struct.pack("<f", value))[0]
    except OverflowError:
        expected = struct.unpack("<I", struct.pack("<f", math.copysign(math.inf, value)))[0]
    found = BY_NAME["fp32"].encode(value)
    assert found == expected or (math.isnan(value) and math.isnan(BY_NAME["fp32"].decode(found)))


@pytest.mark.parametrize("one", FORMATS, ids=lambda one: one.name)
def test_limits_are_those_of_torch(one: Format) -> None:
    info = torch.finfo(DTYPES[one.name])
    assert float(one.largest) == info.max
    assert float(one.smallest_normal) == info.smallest_normal
    assert float(one.epsilon) == info.eps


@pytest.mark.parametrize("name", ["fp8 e4m3", "fp8 e5m2"])
def test_every_pattern_of_fp8_comes_back(name: str) -> None:
    one = BY_NAME[name]
    for bits in range(256):
        value = one.decode(bits)
        theirs = torch.tensor(bits, dtype=torch.uint8).view(DTYPES[name]).to(torch.float64).item()
        assert value == theirs or (math.isnan(value) and math.isnan(theirs))
        if not math.isnan(value):
            assert one.encode(value) == bits


def test_e4m3_ends_at_448_and_has_no_infinity() -> None:
    one = BY_NAME["fp8 e4m3"]
    assert one.decode(one.encode(448.0)) == 448.0
    assert one.decode(one.encode(464.0)) == 448.0  # a tie, to even
    assert math.isnan(one.decode(one.encode(465.0)))
    assert math.isnan(one.decode(one.encode(math.inf)))

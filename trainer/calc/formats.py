"""How floating-point formats hold a number: bit by bit, exactly, in rational arithmetic.

fp32, fp16: IEEE 754. bf16: the upper half of fp32. E4M3 and E5M2: arXiv 2209.05433; E4M3 has no infinity, and its
largest exponent holds numbers, so it reaches 448. Beyond that it becomes NaN here, the paper's rule for overflow;
casts of libraries may saturate at 448 instead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final


@dataclass(frozen=True)
class Format:
    """A binary floating-point format with a sign, ``exponent`` and ``mantissa`` bits.

    ``infinite`` is False if the largest exponent holds numbers, except for the mantissa of all ones, which is NaN.
    """

    name: str
    exponent: int
    mantissa: int
    infinite: bool = True

    @property
    def bias(self) -> int:
        """What is subtracted from the stored exponent."""
        return (1 << (self.exponent - 1)) - 1

    @property
    def largest(self) -> Fraction:
        """Largest finite number."""
        top = (1 << self.exponent) - (2 if self.infinite else 1)
        steps = (2 << self.mantissa) - (1 if self.infinite else 2)
        return Fraction(steps, 1 << self.mantissa) * Fraction(2) ** (top - self.bias)

    @property
    def smallest_normal(self) -> Fraction:
        """Smallest number with full precision."""
        return Fraction(2) ** (1 - self.bias)

    @property
    def smallest(self) -> Fraction:
        """Smallest number above zero."""
        return self.smallest_normal / (1 << self.mantissa)

    @property
    def epsilon(self) -> Fraction:
        """Distance from 1 to the next number."""
        return Fraction(1, 1 << self.mantissa)

    def encode(self, value: float) -> int:
        """Return the bits of the nearest number, ties to even.

        What is beyond the largest number becomes infinity, or NaN in a format without infinity.
        """
        sign = int(math.copysign(1.0, value) < 0) << (self.exponent + self.mantissa)
        special = ((1 << self.exponent) - 1) << self.mantissa
        nan = sign | special | (1 << (self.mantissa - 1) if self.infinite else (1 << self.mantissa) - 1)
        if math.isnan(value):
            return nan
        overflow = sign | special if self.infinite else nan
        if math.isinf(value):
            return overflow
        exact = abs(Fraction(value))
        # Steps of the smallest exponent that holds the number; below the normal ones they stay the same.
        exponent = max(1 - self.bias, _floor_log2(exact)) if exact else 1 - self.bias
        steps = round(exact / Fraction(2) ** (exponent - self.mantissa))
        whole = 1 << self.mantissa
        # Rounding up may reach the next exponent; adding the steps carries over by itself.
        bits = steps if steps < whole else ((exponent + self.bias) << self.mantissa) + steps - whole
        return sign | bits if self._value(bits) <= self.largest else overflow

    def decode(self, bits: int) -> float:
        """Return the number that the bits mean."""
        negative = bits >> (self.exponent + self.mantissa) & 1
        bits &= (1 << (self.exponent + self.mantissa)) - 1
        if self.infinite and bits >> self.mantissa == (1 << self.exponent) - 1:
            magnitude = math.inf if bits & ((1 << self.mantissa) - 1) == 0 else math.nan
        elif not self.infinite and bits == (1 << (self.exponent + self.mantissa)) - 1:
            magnitude = math.nan
        else:
            magnitude = float(self._value(bits))
        return -magnitude if negative else magnitude

    def _value(self, bits: int) -> Fraction:
        stored, steps = bits >> self.mantissa, bits & ((1 << self.mantissa) - 1)
        if stored == 0:
            return self.smallest * steps
        return Fraction(steps + (1 << self.mantissa), 1 << self.mantissa) * Fraction(2) ** (stored - self.bias)


def _floor_log2(value: Fraction) -> int:
    guess = value.numerator.bit_length() - value.denominator.bit_length()
    return guess if Fraction(2) ** guess <= value else guess - 1


FORMATS: Final = (
    Format("fp32", 8, 23),
    Format("bf16", 8, 7),
    Format("fp16", 5, 10),
    Format("fp8 e4m3", 4, 3, infinite=False),
    Format("fp8 e5m2", 5, 2),
)

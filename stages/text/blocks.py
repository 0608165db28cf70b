"""Sixty-four bytes of text at a time: what kernels ask of a block, in one vector instruction or a few.

A mask's bit i stands for byte i of the 64 that lie at a place. numba has no such operations, so they are written in
LLVM's language, which compiles for any processor; all that Arrow runs on hold the lowest byte first. They are no
functions but intrinsics: numba would count references to every array that is handed to a function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic as numba_intrinsic

BLOCK: Final = 64

Define = Callable[..., tuple[Any, Any]]
"""Says, of the types of the arguments, what an intrinsic takes and gives, and generates it."""


def intrinsic(define: Define) -> Any:
    """Make an intrinsic, to be called in kernels."""
    return numba_intrinsic(define)


_I64: Final = ir.IntType(64)
_BYTES: Final = ir.VectorType(ir.IntType(8), BLOCK)


def _all(byte: int) -> Any:
    return ir.Constant(_BYTES, [byte] * BLOCK)


def _between(builder: Any, block: Any, first: int, last: int) -> Any:
    """Return the lanes of bytes from ``first`` to ``last``."""
    return builder.icmp_unsigned("<=", builder.sub(block, _all(first)), _all(last - first))


def _pointer(context: Any, builder: Any, signature: Any, values: Any, to: Any) -> Any:
    array = context.make_array(signature.args[0])(context, builder, values[0])
    return builder.bitcast(builder.gep(array.data, [values[1]]), to.as_pointer())


def _mask_of(lanes_of: Callable[[Any, Any], Any]) -> Any:
    """Return an intrinsic (data, at) that gives the mask of the lanes that ``lanes_of(builder, block)`` chooses."""

    def define(_: Any, data: Any, at: Any) -> tuple[Any, Any]:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            block = builder.load(_pointer(context, builder, signature, values, _BYTES), align=1)
            return builder.bitcast(lanes_of(builder, block), _I64)

        return types.uint64(data, types.int64), generate

    return intrinsic(define)


def _is_letter(builder: Any, block: Any) -> Any:
    return _between(builder, builder.or_(block, _all(0x20)), ord("a"), ord("z"))


def _is_word_byte(builder: Any, block: Any) -> Any:
    letter = _is_letter(builder, block)
    digit = _between(builder, block, ord("0"), ord("9"))
    return builder.or_(builder.or_(letter, digit), _between(builder, block, ord("_"), ord("_")))


def _is_control_or_high(builder: Any, block: Any) -> Any:
    return builder.or_(_between(builder, block, 0x00, 0x1F), _between(builder, block, 0x80, 0xFF))


word_bytes = _mask_of(_is_word_byte)
"""Intrinsic (data, at): ASCII letters, digits and ``_``, which is what ``characters`` calls a letter, of ASCII."""
letters = _mask_of(_is_letter)
"""Intrinsic (data, at): letters of ASCII."""
not_ascii = _mask_of(lambda builder, block: _between(builder, block, 0x80, 0xFF))
"""Intrinsic (data, at): bytes from 0x80 on."""
controls = _mask_of(_is_control_or_high)
"""Intrinsic (data, at): controls of ASCII, white space among them, and bytes from 0x80 on."""
spaces = _mask_of(lambda builder, block: _between(builder, block, 0x20, 0x20))
"""Intrinsic (data, at): spaces, U+0020."""
from_u0300 = _mask_of(lambda builder, block: _between(builder, block, 0xCC, 0xFF))
"""Intrinsic (data, at): bytes with which, in UTF-8, a character from U+0300 on begins."""


@intrinsic
def load(_: Any, data: Any, at: Any) -> tuple[Any, Any]:
    """Return the 8 bytes at a place, the first one lowest."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.load(_pointer(context, builder, signature, values, _I64), align=1)

    return types.uint64(data, types.int64), generate


@intrinsic
def copy_block(_: Any, source: Any, at: Any, target: Any, to: Any) -> tuple[Any, Any]:
    """Copy the 64 bytes at ``at`` of ``source`` to ``to`` of ``target``."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        block = builder.load(_pointer(context, builder, signature, values, _BYTES), align=1)
        array = context.make_array(signature.args[2])(context, builder, values[2])
        place = builder.bitcast(builder.gep(array.data, [values[3]]), _BYTES.as_pointer())
        builder.store(block, place, align=1)
        return context.get_dummy_value()

    return types.void(source, types.int64, target, types.int64), generate


@intrinsic
def trailing_zeros(_: Any, mask: Any) -> tuple[Any, Any]:
    """Return how many zero bits lie below the lowest one that is set; 64 where none is."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.cttz(values[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


@intrinsic
def sum_of_terms(_: Any, chunk: Any, terms: Any) -> tuple[Any, Any]:
    """Return the sum modulo 2^64 of ``terms[k << 8 | byte]`` over 8 bytes, the highest of which has k = 0."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        data = context.make_array(signature.args[1])(context, builder, values[1]).data
        total = _I64(0)
        for k in range(8):
            byte = builder.and_(builder.lshr(values[0], _I64(56 - 8 * k)), _I64(0xFF))
            place = builder.gep(data, [builder.or_(byte, _I64(k << 8))])
            total = builder.add(total, builder.load(place))
        return total

    return types.uint64(types.uint64, terms), generate

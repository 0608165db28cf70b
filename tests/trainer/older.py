"""An older processor on a newer one: the variables that hold torch and oneDNN to AVX2, without bf16 instructions."""

from __future__ import annotations

import platform

import pytest

OLDER = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}

on_x86 = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the variables are those of x86")

"""What a test asks of the processor, and the variables that make an older one of a newer one."""

from __future__ import annotations

import platform

import pytest
import torch

from trainer.bf16 import has_bf16

OLDER = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
"""Holds torch and oneDNN to AVX2, without bf16 instructions."""

on_x86 = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the variables are those of x86")
needs_bf16 = pytest.mark.skipif(not has_bf16(torch.device("cpu")), reason="this processor has no bf16 instructions")

"""What tests of several stages share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stages.base import Stage


def stage_of(kind: Callable[..., object], **parameters: Any) -> Stage:
    """Return a decorated class's stage with these parameters; a type checker cannot see what the decorator adds."""
    made = kind(**parameters)
    assert isinstance(made, Stage)
    return made

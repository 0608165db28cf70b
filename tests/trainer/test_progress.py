from __future__ import annotations

import importlib.metadata

from trainer.progress import Progress


def test_a_checkpoint_is_named_by_its_step_and_knows_its_writer() -> None:
    progress = Progress(12, 1200, 11, {}, {})
    assert progress.name == "step-00000012"
    assert progress.code_version == importlib.metadata.version("headrace")

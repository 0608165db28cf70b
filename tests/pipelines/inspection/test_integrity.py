from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipelines.inspection.integrity import entries, verify
from tests.pipelines.support import finished_run


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_a_run_as_it_was_written_is_whole_and_every_file_is_read_once(copied: Path) -> None:
    run, sizes = finished_run(copied), list[int]()
    named = [entry for _, _, entry in entries(run)]
    assert {"judge/documents", "fit_lm/models", "shards/books/train", "drops/drops"} <= {
        entry.path.rpartition("/")[0] for entry in named
    }
    assert verify(run, sizes.append) == []
    assert sizes == [entry.size for entry in named]


@pytest.mark.parametrize("kind", ["judge/verdicts", "fit_lm/models", "shards/books/train"])
@pytest.mark.parametrize("damage", ["flipped", "lost"])
def test_what_is_damaged_is_named_and_made_anew_by_the_same_recipe(
    corpus: Any, run_recipe: Any, copied: Path, kind: str, damage: str
) -> None:
    victim = sorted(path for path in (copied / kind).iterdir() if path.is_file())[0]
    before = victim.read_bytes()
    if damage == "flipped":
        flip(victim)
    else:
        victim.unlink()
    run = finished_run(copied)
    run.store.repairs = True
    (found,) = verify(run, lambda _: None)
    assert found.path == victim.relative_to(copied).as_posix()
    assert found.made_by == {"judge": "judge", "fit_lm": "fit_lm", "shards": "write"}[kind.partition("/")[0]]
    assert found.path in found.what
    assert not victim.exists()
    again = run_recipe(copied, corpus.recipe(), corpus.folder)
    assert victim.read_bytes() == before
    assert set(again.notes.ended) - again.notes.unchanged == {found.made_by}
    assert verify(again.run, lambda _: None) == []

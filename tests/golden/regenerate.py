"""Compute all goldens anew and say what changed: ``python -m tests.golden.regenerate`` in the checkout.

What a stage did to an input under one version of its name, it must always do. So where an output changed and the
version did not, nothing is written: raise the version, and the new one gets a golden of its own in place of the old
one's. A change that keeps the version all the same, such as a corrected error message, needs ``--same-version`` with
the reason, which is kept in the golden.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.golden import reader_goldens, recipe_goldens, stage_goldens
from tests.golden.golden import FOLDER, Difference, Golden, differences, load, other_versions, save, save_environment

_SHOWN = 20


@dataclass(frozen=True)
class Update:
    """What is to become of one golden.

    Attributes:
        path: where it is kept.
        was: as recorded, perhaps under an earlier version's name; None if there was none.
        now: as computed; None if what it describes is gone.
        found: the differences.
    """

    path: Path
    was: Golden | None
    now: Golden | None
    found: tuple[Difference, ...] = ()

    @property
    def is_needed(self) -> bool:
        """Whether anything is to be written or deleted."""
        if self.was is None or self.now is None or self.found:
            return True
        return (self.was.name, self.was.versions) != (self.now.name, self.now.versions)

    @property
    def breaks_its_version(self) -> bool:
        """Whether the same input came out differently under the same version."""
        return any(difference.is_behaviour for difference in self.found)

    def lines(self) -> Iterable[str]:
        """Yield what to read of it."""
        name = self.now.name if self.now else self.was.name if self.was else ""
        if self.now is None:
            yield f"{name}: gone"
        elif self.was is None:
            yield f"{name}: new"
        else:
            before = "" if self.was.name == name else f" (was {self.was.name})"
            yield f"{name}{before}: {len(self.found)} cases differ"
            yield from (f"  {difference}" for difference in self.found[:_SHOWN])
            if len(self.found) > _SHOWN:
                yield f"  and {len(self.found) - _SHOWN} more"


def updates(now: Mapping[Path, Golden], recorded: Mapping[Path, Golden]) -> list[Update]:
    """Compare the computed goldens with the recorded ones; a new version of something with the version before it."""
    gone = {path: golden for path, golden in recorded.items() if path not in now}
    found = []
    for path, golden in now.items():
        was = recorded.get(path)
        if was is None:
            was = next(
                (old for at, old in gone.items() if (at.parent, old.family) == (path.parent, golden.family)), None
            )
        found.append(Update(path, was, golden, tuple(differences(was, golden)) if was else ()))
    return found + [Update(path, golden, None) for path, golden in gone.items()]


def recorded_in(folder: Path) -> dict[Path, Golden]:
    """Return all recorded goldens below ``folder``."""
    paths = [*folder.glob("stages/*.json"), *folder.glob("readers.json"), *folder.glob("recipes/*/golden.json")]
    return {path: load(path) for path in sorted(paths)}


def apply(found: Sequence[Update], reason: str) -> None:
    """Write and delete what is needed; ``reason`` goes into the goldens of what keeps its version."""
    for update in found:
        if update.now is None:
            update.path.unlink()
        elif update.is_needed:
            kept = update.was.same_version if update.was and update.was.name == update.now.name else ()
            given = (reason,) if update.breaks_its_version else ()
            save(replace(update.now, same_version=(*kept, *given)), update.path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status, 1 if a version has to be raised first."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.golden.regenerate", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--same-version", metavar="REASON", default="", help="why outputs may change under one version")
    reason: str = parser.parse_args(arguments).same_version.strip()
    now = {**stage_goldens.compute_all(), **reader_goldens.compute_all(), **recipe_goldens.compute_all()}
    found = [update for update in updates(now, recorded_in(FOLDER)) if update.is_needed]
    for update in found:
        print("\n".join(update.lines()))
    broken = [update.now.name for update in found if update.now and update.breaks_its_version]
    if broken and not reason:
        if versions := other_versions():
            print(f"The goldens were computed with other versions: {', '.join(versions)}")
        print(f"Nothing is written: outputs changed under the same version of {', '.join(broken)}.")
        print("Raise the version in the name (of a recipe: of the pass), or say why not with --same-version REASON.")
        return 1
    apply(found, reason)
    if found:
        save_environment()
    print(f"{len(found)} of {len(now)} goldens changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())

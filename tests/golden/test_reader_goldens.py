from __future__ import annotations

from stages.readers import READ_FAILURES, READ_REASONS
from tests.golden.golden import complaint, differences, load
from tests.golden.reader_goldens import PATH, compute


def test_the_readers_return_what_their_golden_says() -> None:
    recorded = load(PATH)
    found = differences(recorded, compute())
    assert not found, complaint(found, recorded, "raise the version of the pass judge, which reads")


def test_every_way_in_which_a_record_can_end_is_in_the_golden() -> None:
    files = [case.output for section in load(PATH).sections.values() for case in section.cases.values()]
    ends = {row.get("reason") for rows in files for row in rows.values()}
    # Nobody knows an input on which a decoder breaks down: whoever finds one fixes the decoder.
    assert ends == {None, *READ_REASONS, *READ_FAILURES} - {"crashed"}

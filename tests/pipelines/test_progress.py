from __future__ import annotations

import io

from rich.console import Console

from pipelines.progress import PLAIN_SECONDS, PassProgress


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def plain(clock: Clock) -> tuple[PassProgress, io.StringIO]:
    out = io.StringIO()
    return PassProgress(Console(file=out, width=40, force_terminal=False), clock), out


def test_plain_lines_are_few_and_name_bytes_and_time_left() -> None:
    clock = Clock()
    progress, out = plain(clock)
    progress.begin("judge", 100_000_000, 20_000_000, is_bytes=True)
    for second in range(1, 13):
        clock.now = 100.0 + second
        progress.advance(20_000_000 + second * 1_000_000)
    progress.end("3 units in 12.0 s")
    lines = out.getvalue().splitlines()
    assert lines[0] == "judge: 25% (25.0 MB of 100.0 MB), about 1:15 left"
    assert lines[1] == "judge: 30% (30.0 MB of 100.0 MB), about 1:10 left"
    assert lines[2].endswith("judge            3 units in 12.0 s")
    assert len(lines) == 3


def test_units_are_counted_where_there_are_no_bytes() -> None:
    clock = Clock()
    progress, out = plain(clock)
    progress.begin("near", 4, 0, is_bytes=False)
    clock.now += PLAIN_SECONDS
    progress.advance(1)
    assert out.getvalue() == "near: 25% (1 of 4), about 0:15 left\n"


def test_nothing_is_divided_by_zero() -> None:
    clock = Clock()
    progress, out = plain(clock)
    progress.begin("judge", 0, 0, is_bytes=True)
    clock.now += PLAIN_SECONDS
    progress.advance(0)
    progress.end("unchanged")
    assert "judge: 0% (0.0 MB of 0.0 MB)\n" in out.getvalue()


def test_a_note_is_no_markup_and_never_wraps() -> None:
    progress, out = plain(Clock())
    progress.begin("x", 1, 0, is_bytes=False)
    progress.end("[red]" + "word " * 20 + "end")
    assert len(out.getvalue().splitlines()) == 1
    assert "[red]word" in out.getvalue()


def test_a_terminal_gets_a_bar_that_is_gone_at_the_end() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, legacy_windows=False)
    with PassProgress(console) as progress:
        progress.begin("judge", 50_000_000, 0, is_bytes=True)
        progress.advance(25_000_000)
        assert progress._bars is not None
        progress._bars.refresh()
        progress.end("1 unit in 1.0 s")
        assert progress._bars is None
    assert "25.0/50.0 MB" in out.getvalue()
    assert "1 unit in 1.0 s" in out.getvalue()


def test_an_error_closes_the_bar() -> None:
    console = Console(file=io.StringIO(), force_terminal=True)
    progress = PassProgress(console)
    try:
        with progress:
            progress.begin("judge", 10, 0, is_bytes=False)
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    assert progress._bars is None

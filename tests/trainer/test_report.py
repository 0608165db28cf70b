from __future__ import annotations

import io
import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from trainer.report import Log, Screen

LINE: dict[str, Any] = {
    "phase": "base",
    "context_tokens": 32,
    "loss": 1.5,
    "learning_rate": 0.001,
    "gradient_norm": 0.25,
}


def _steps(path: Path) -> list[int]:
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


def test_resuming_drops_later_lines(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with Log(path, 0) as log:
        for step in (1, 2, 3):
            log.write({"step": step})
    with Log(path, 2) as log:
        assert _steps(path) == [1, 2]
        log.write({"step": 3})
    assert _steps(path) == [1, 2, 3]
    with Log(path, 0):
        assert _steps(path) == []


@pytest.mark.parametrize("tail", ['{"step": 3', "\n", "null\n", '{"stop": 3}\n', "\x00\x00"])
def test_an_incomplete_last_line_is_dropped(tmp_path: Path, tail: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n' + tail)
    with Log(path, 5) as log:
        log.write({"step": 3})
    assert _steps(path) == [1, 2, 3]


def test_the_same_lines_give_the_same_bytes(tmp_path: Path) -> None:
    lines = [{"step": n, "loss": 0.1 * n, "domains": {"größe": {"loss": 1e-17}}} for n in (1, 2)]
    for name in ("a", "b"):
        with Log(tmp_path / name, 0) as log:
            log.write(lines[0])
        with Log(tmp_path / name, 1) as log:
            log.write(lines[1])
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_plain_lines_are_few_and_show_first_and_last(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(first_rank=True, steps=1000)
    with screen.progress(0, 1000):
        for step in range(1, 1001):
            screen.step(LINE | {"step": step}, 1234.0)
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "step 1/1000  base (32 tokens)  loss 1.5000  lr 1.00e-03  norm 0.25  1,234 tokens/s"
    assert out[-1].startswith("step 1000/1000")
    assert 20 <= len(out) <= 22


def test_the_end_is_announced_once_and_then_the_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(first_rank=True, steps=40, now=lambda: datetime(2026, 11, 30, 15, 41))
    for step in range(1, 41):
        screen.step(LINE | {"step": step}, 1.0, None if step < 4 else (40 - step) * 10.0)
    out = capsys.readouterr().out.splitlines()
    assert out[0].endswith("1 tokens/s")
    assert out[2] == "training ends in about 6 min 0 s, at 15:47:00"
    assert out[3].endswith("1 tokens/s  6 min 0 s left")
    assert sum("ends" in line for line in out) == 1
    assert out[-1].endswith("1 tokens/s")


def test_a_training_that_stops_before_its_end_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(first_rank=True, steps=1_000, now=lambda: datetime(2026, 11, 30, 15, 41))
    with screen.progress(10, 17):
        for step in range(11, 18):
            screen.step(LINE | {"step": step}, 1.0, (17 - step) * 10.0)
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "training stops after step 17 in about 1 min 0 s, at 15:42:00"
    assert out[-1].startswith("step 17/1000")


@pytest.mark.parametrize("width", [70, 80, 120])
def test_a_terminal_of_any_usual_width_shows_what_is_left(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    screen = Screen(first_rank=True, steps=100_000, now=lambda: datetime(2026, 11, 30, 15, 41))
    shown = io.StringIO()
    screen._console = Console(file=shown, force_terminal=True, width=width, highlight=False, color_system=None)
    with screen.progress(0, 100_000):
        screen.step(LINE | {"step": 4_123}, 12_345.0, 90_000.0)
    text = shown.getvalue()
    assert "training ends in about 1 d 1 h, at 2026-12-01 16:41" in text
    last = [line for line in re.split(r"\x1b\[2K|\n", text) if "training" in line][-1]
    assert "4123/100000" in last
    assert "1 d 1 h left" in last
    assert "loss" in last


@pytest.mark.parametrize("steps", [1, 19, 20, 39, 41, 1_000])
def test_about_twenty_lines_are_enough(steps: int, capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(first_rank=True, steps=steps)
    for step in range(1, steps + 1):
        screen.step(LINE | {"step": step}, 1.0)
    assert min(steps, 14) <= len(capsys.readouterr().out.splitlines()) <= 22


def test_other_ranks_are_silent(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(first_rank=False, steps=1)
    with screen.progress(0, 1):
        screen.step(LINE | {"step": 1}, 1.0)
        screen.losses("held out", {"web": (1.0, 2)})
        screen.say("[bold]hello[/bold]")
    assert capsys.readouterr().out == ""


def test_markup_in_a_name_stays_text(capsys: pytest.CaptureFixture[str]) -> None:
    Screen(first_rank=True, steps=1).losses("held out", {"[red]web": (1.0, 2)})
    assert capsys.readouterr().out == "held out: [red]web 1.0000\n"

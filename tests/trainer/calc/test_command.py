from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from typer.testing import CliRunner

from shards.errors import UserError
from trainer.calc.command import app


def asked(*arguments: str) -> Any:
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_weights_of_175_b_in_bf16_are_350_gb() -> None:
    assert asked("memory", "--parameters", "175e9")["weights_gb"]["bf16"] == 350


def test_training_70_b_takes_over_a_terabyte() -> None:
    found = asked("memory", "--model", "70b", "--ranks", "64")
    assert found["state_gb_all_ranks"] > 1_000
    parts = found["rank_gb"]
    assert sum(value for name, value in parts.items() if name != "total") == pytest.approx(parts["total"])


def test_chinchilla_tells_all_three_apart() -> None:
    found = asked("chinchilla", "--flops", "1e23")
    refit = found["optimum"]["Besiroglu et al., arXiv 2404.10102"]
    assert (f"{refit['parameters'] / 1e9:.1f}", f"{refit['tokens'] / 1e9:.0f}", f"{refit['loss']:.3f}") == (
        "29.4",
        "566",
        "2.032",
    )
    assert len(found["optimum"]) == 3
    assert any("rule of thumb" in name for name in found["optimum"])
    assert found["smaller_for_longer"][0]["more_compute"] > 1


def test_fit_names_measures_in_order() -> None:
    found = asked("fit", "--model", "70b", "--ranks", "8")
    assert [one["measure"] for one in found["measures"]][:3] == ["zero = 0", "zero = 1", "zero = 2"]
    assert not found["fits"]
    assert found["fewest_ranks"] > 8


def test_cost_of_flops_or_of_a_model() -> None:
    assert asked("cost", "--gpus", "1000", "--flops", "8.64e22", "--peak", "1e15", "--mfu", "0.5")[
        "days"
    ] == pytest.approx(2)
    assert asked("cost", "--gpus", "8", "--model", "1b", "--tokens", "1e9")["flops"] > 6e18


def test_formats_hold_what_json_cannot() -> None:
    found = asked("formats", "70000")
    assert found["fp16"]["value"] == "inf"
    assert found["bf16"]["value"] == 70144


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["memory"], "either --model or --parameters"),
        (["memory", "--model", "9b"], "no preset"),
        (["memory", "--model", "8b", "--precision", "fp8"], "bf16"),
        (["memory", "--model", "8b", "--device", "tpu"], "no device"),
        (["cost", "--gpus", "1"], "give --flops"),
        (["cost", "--gpus", "1", "--flops", "1e20", "--gpu", "z9"], "not known"),
    ],
)
def test_a_mistake_is_a_users_error(arguments: list[str], what: str) -> None:
    done = CliRunner().invoke(app, arguments)
    assert isinstance(done.exception, UserError)
    assert what in str(done.exception)


@pytest.mark.parametrize("command", ["memory", "fit", "chinchilla", "cost", "formats"])
def test_help_names_the_sources(command: str) -> None:
    assert "arXiv" in CliRunner().invoke(app, [command, "--help"]).stdout


def test_it_needs_no_torch() -> None:
    code = "import sys, trainer.calc.command; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_tables_are_for_people() -> None:
    for arguments in (
        ["fit"],
        ["chinchilla", "--flops", "1e21"],
        ["formats", "0.1"],
        ["memory", "--parameters", "1e9"],
    ):
        assert CliRunner().invoke(app, arguments).exit_code == 0

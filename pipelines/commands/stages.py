"""``headrace stages``: the stages that a recipe may name."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any

import typer


def stages(
    as_json: Annotated[bool, typer.Option("--json", help="Print plain JSON instead of a table.")] = False,
) -> None:
    """List the stages that a recipe may name, with their reasons and parameters."""
    from stages.failing import FAILURES
    from stages.registry import recipe_stages, stage_class

    found = [describe(stage_class(name)) for name in recipe_stages()]
    if as_json:
        typer.echo(json.dumps(found, indent=1, ensure_ascii=False))
        return
    from rich.text import Text

    from pipelines.inspection.terminal import make_console

    console = make_console()
    for stage in found:
        console.print(Text.assemble((stage["name"], "bold"), f"  {stage['summary']}"))
        _print_list(console, "drops", stage["reasons"])
        _print_list(console, "fails", [failure for failure in stage["failures"] if failure not in FAILURES])
        _print_list(console, "adds", stage["columns"])
        for name, parameter in stage["parameters"].items():
            default = f"= {json.dumps(parameter['default'])}" if "default" in parameter else "(required)"
            console.print(
                Text.assemble("    ", (name, "cyan"), f" {default}", (f"  {_short(parameter['type'])}", "dim"))
            )
        console.print()
    console.print(Text(f"In any stage, a document that crashes it has failed: {', '.join(FAILURES)}"))


def _short(kind: str) -> str:
    """Return a type as written, without annotations of its limits."""
    return re.sub(r"Annotated\[(.+?), pydantic\.Field\([^)]*\)\]", r"\1", kind)


def _print_list(console: Any, label: str, names: list[str]) -> None:
    from rich.text import Text

    if names:
        console.print(Text(f"  {label}: {', '.join(names)}"))


def describe(kind: Any) -> dict[str, Any]:
    """Describe a stage's class: name, first line of its docstring, reasons, failures, new columns, parameters."""
    from stages.base import failures_of

    summary = (kind.__doc__ or "").strip().split("\n", 1)[0].replace("``", "")
    columns = kind.columns if not isinstance(kind.columns, property) else {}
    return {
        "name": kind.name,
        "summary": summary,
        "reasons": list(kind.reasons),
        "failures": list(failures_of(kind)),
        "columns": sorted(columns),
        "parameters": _parameters(kind),
    }


def _parameters(kind: Any) -> dict[str, dict[str, Any]]:
    """Return each parameter's type as written, and its default where it has one."""
    found: dict[str, dict[str, Any]] = {}
    for name, field in kind.__pydantic_fields__.items():
        parameter: dict[str, Any] = {"type": kind.__annotations__[name]}
        if not isinstance(parameter["type"], str):
            parameter["type"] = str(parameter["type"])
        if not field.is_required():
            parameter["default"] = field.get_default(call_default_factory=True)
        found[name] = parameter
    return found

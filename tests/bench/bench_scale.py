"""The stream over as many shards as a trillion tokens take, beside a hundred of them, in one run.

    .venv/bin/python tests/bench/bench_scale.py [--shards 31250] [--documents 32000] [--json]

The shards are hard links to a few, so they take little space, but the index of lengths is whole: 4.3 GB at the default
size. Nothing here asserts a time: results are read by people, and kept with their date in ``results/``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from linked_shards import linked, web_like, write_catalog, write_shard

from shards.reader import ShardSet
from shards.schedule.resolve import resolve
from shards.schedule.schedule import Schedule
from shards.schedule.settings import ScheduleSettings
from trainer.cursor import GROUP_ROWS, group_documents
from trainer.stream import Stream

CONTEXTS = (2_048, 4_096, 8_192, 32_768)
BATCH_TOKENS = 1 << 22
FEW_SHARDS = 100
WRITTEN = 4
MEAN_TOKENS = 1_000
WARM_STEPS = 2
RESUMED_STEP = 1_000_000


def main() -> None:
    """Write the shards, measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=31_250, help="shards of the large folder (default 31,250)")
    parser.add_argument("--documents", type=int, default=32_000, help="documents of a shard (default 32,000)")
    parser.add_argument("--batch-tokens", type=int, default=BATCH_TOKENS, help="row slots of a step")
    parser.add_argument("--steps", type=int, default=8, help="steps of a measurement (default 8)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of measuring, in turns (default 5)")
    parser.add_argument("--folder", type=Path, help="where to write; a temporary folder by default")
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")
    parser.add_argument("--rank", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        print(json.dumps(_rank(options)))
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        found = _measure(options, Path(name))
    print(json.dumps(found, indent=1) if options.json else _table(found))


def _measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    written = folder / "written"
    written.mkdir()
    rng = np.random.default_rng(1)
    entries = [
        write_shard(written, "web", str(n), web_like(options.documents, MEAN_TOKENS, rng), rng) for n in range(WRITTEN)
    ]
    places = {}
    for count in (min(FEW_SHARDS, options.shards), options.shards):
        place = places[count] = folder / str(count)
        place.mkdir(exist_ok=True)
        write_catalog(place, {"web": linked(place, written, entries, count)})
    few, many = min(places), max(places)
    speeds = {
        f"{context:,}": _speeds(
            options, {name: places[count] for name, count in (("few", few), ("many", many))}, context
        )
        for context in CONTEXTS
    }
    return {"shards": many, "few": few, "tokens per CPU-second": speeds, "ranks": _ranks(options, places[many])}


def _schedule(shards: ShardSet, context: int, batch_tokens: int) -> Schedule:
    batch = batch_tokens // context * context
    phase = {
        "name": "only",
        "tokens": 2 * RESUMED_STEP * batch,
        "context_tokens": context,
        "batch_tokens": batch,
        "learning_rate": {"start": 1e-3},
    }
    settings = ScheduleSettings.model_validate({"phases": [phase], "default_max_epochs": 1e12})
    return resolve(settings, shards.catalog.tokens_per_domain("train"))


def _speeds(options: argparse.Namespace, places: dict[str, Path], context: int) -> dict[str, float]:
    """Return medians over the rounds, each of which measures every stream in turn."""
    streams = {}
    for name, place in places.items():
        shards = ShardSet.open(place)
        schedule = _schedule(shards, context, options.batch_tokens)
        every = int(shards.shard_rows("web").size)
        for order, window in (("windows", None), ("global", every)):
            streams[f"{name}, {order}"] = Stream(shards, schedule, 1, window_shards=window)
    rounds: dict[str, list[float]] = {}
    for stream in streams.values():
        for step in range(WARM_STEPS):
            stream.batch(step)
    for _ in range(options.rounds):
        for name, stream in streams.items():
            for kind, work in (("planning", stream.plan), ("batches", stream.batch)):
                begun, first = time.process_time(), stream.step
                for step in range(first, first + options.steps):
                    work(step)
                took = max(time.process_time() - begun, 1e-9)
                tokens = options.steps * stream.schedule.phases[0].batch_tokens
                rounds.setdefault(f"{kind}, {name}", []).append(tokens / took)
    return {name: statistics.median(speeds) for name, speeds in rounds.items()}


def _ranks(options: argparse.Namespace, place: Path) -> list[dict[str, float]]:
    """Return what two ranks that run at the same time, each a process of its own, say of opening and resuming."""
    command = [sys.executable, __file__, "--rank", str(place), "--batch-tokens", str(options.batch_tokens)]
    # Once before, so that both find the files in the page cache.
    subprocess.run(command, check=True, capture_output=True)
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    return [json.loads(process.communicate()[0]) for process in running]


def _rank(options: argparse.Namespace) -> dict[str, float]:
    begun = time.process_time()
    shards = ShardSet.open(options.rank)
    opened = time.process_time()
    context = 4_096
    schedule = _schedule(shards, context, options.batch_tokens)
    state = _state_at(Stream(shards, schedule, 1), shards, context)
    started, started_cpu = time.perf_counter(), time.process_time()
    stream = Stream(shards, schedule, 1, state=state)
    stream.batch(RESUMED_STEP)
    resumed, resumed_cpu = time.perf_counter(), time.process_time()
    for step in range(RESUMED_STEP + 1, RESUMED_STEP + 12):
        stream.batch(step)
    return {
        "opening, CPU-s": opened - begun,
        "first batch after a resume, s": resumed - started,
        "first batch after a resume, CPU-s": resumed_cpu - started_cpu,
        "private memory, MB": _private_bytes() / 1e6,
    }


def _state_at(stream: Stream, shards: ShardSet, context: int) -> dict[str, Any]:
    """Return the state that a stream has before step ``RESUMED_STEP``, at an average number of rows of each group."""
    documents, tokens = shards.documents("web"), shards.token_count("web")
    group = group_documents(context, documents, tokens)
    served = RESUMED_STEP * stream.schedule.phases[0].batch_tokens
    epoch, into = divmod(served, tokens)
    start = min(into * documents // tokens // group, documents // group - 2) * group
    state = stream.state()
    return state | {
        "step": RESUMED_STEP,
        "domains": {"web": (served, epoch, start, group, [(context, GROUP_ROWS // 2)])},
    }


def _private_bytes() -> int:
    """Return the memory that is this process's alone: what is mapped of files is the page cache's."""
    fields = {}
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]:
        name, _, value = line.partition(":")
        fields[name] = int(value.split()[0]) * 1024
    return fields["Private_Dirty"]


def _table(found: dict[str, Any]) -> str:
    lines = [f"{found['shards']:,} shards beside {found['few']:,} (few); {os.cpu_count()} processors", ""]
    for context, speeds in found["tokens per CPU-second"].items():
        for kind in ("planning", "batches"):
            for order in ("windows", "global"):
                few, many = (speeds[f"{kind}, {name}, {order}"] for name in ("few", "many"))
                ratio = f"{many / few:.2f} of few"
                lines.append(
                    f"{context:>7} {kind:<9} {order:<8} {few / 1e6:8.1f} {many / 1e6:8.1f} M tokens/CPU-s, {ratio}"
                )
    for number, rank in enumerate(found["ranks"]):
        lines += [f"rank {number}: {name} {value:.3f}" for name, value in rank.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    main()

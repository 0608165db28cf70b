"""``headrace calc``: the calculators as subcommands, each with ``--json``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shards.errors import UserError
from shards.presets import PRESETS, preset
from trainer.calc import chinchilla as law
from trainer.calc import cost as costs
from trainer.calc.formats import FORMATS
from trainer.calc.show import Table, show, tokens_and_parameters

if TYPE_CHECKING:
    from shards.rank_memory import Device
    from shards.training import ModelSettings, TrainSettings

app = typer.Typer(
    name="calc",
    help="Calculate what a training needs: memory, a fitting set-up, sizes, cost, number formats. Needs no torch.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
_Model = Annotated[str | None, typer.Option(help=f"Preset: {', '.join(PRESETS)}.")]
_Vocabulary = Annotated[int, typer.Option(min=1, help="Size of the tokeniser's vocabulary.")]
_Ranks = Annotated[int, typer.Option(min=1, help="GPUs, or processes on CPU.")]
_Context = Annotated[int, typer.Option(min=2, help="Context length in tokens.")]
_Rows = Annotated[int, typer.Option(min=1, help="Rows of a micro-batch.")]
_Device = Annotated[str, typer.Option(help="cuda or cpu: their kernels keep different activations.")]

_GIGA = 1e9


def _settings(place: str, **given: Any) -> TrainSettings:
    from shards.training import TrainSettings, parse_settings

    return parse_settings(TrainSettings, {name: value for name, value in given.items() if value is not None}, place)


def _model(name: str) -> ModelSettings:
    from shards.training import ModelSettings

    return ModelSettings.model_validate(preset(name, "--model"))


def _kind(device: str) -> Device:
    if device == "cuda":
        return "cuda"
    if device == "cpu":
        return "cpu"
    raise UserError(f"there is no device {device!r}", place="--device", remedy="Choose cuda or cpu")


@app.command()
def memory(
    model: _Model = None,
    parameters: Annotated[float | None, typer.Option(min=1, help="Instead of a preset: a number, as 175e9.")] = None,
    vocabulary: _Vocabulary = 128_256,
    ranks: _Ranks = 1,
    zero: Annotated[int, typer.Option(min=0, max=3, help="ZeRO stage.")] = 3,
    precision: Annotated[str, typer.Option(help="bf16 or fp32, of compute.")] = "bf16",
    context: _Context = 4_096,
    rows: _Rows = 1,
    recompute: Annotated[str, typer.Option(help="none, selective or blocks.")] = "none",
    recompute_every: Annotated[int, typer.Option(min=1, help="Blocks recomputed together.")] = 1,
    device: _Device = "cuda",
    as_json: _Json = False,
) -> None:
    """Say what training takes of memory, part by part, in GB of 10^9 bytes.

    Weights in bf16 take 2 bytes a parameter: 175 B are 350 GB. Training takes 16 more: fp32 masters, gradients and two
    moments of Adam (ZeRO, arXiv 1910.02054); activations in the manner of arXiv 2205.05198. On CPU the sum is within
    5% of what is counted in a real step.
    """
    from shards.rank_memory import rank_memory

    settings = {"zero": zero, "precision": precision, "micro_batch_rows": rows, "recompute": recompute}
    bf16 = "native" if precision == "bf16" and device == "cuda" else "auto"
    training = _settings("headrace calc memory", **settings, recompute_every=recompute_every, bf16=bf16)
    if (model is None) == (parameters is None):
        raise UserError("give either --model or --parameters", place="headrace calc memory")
    count = parameters if model is None else float(_model(model).parameters(vocabulary))
    assert count is not None
    found: dict[str, Any] = {
        "parameters": count,
        "weights_gb": {"bf16": 2 * count / _GIGA, "fp32": 4 * count / _GIGA},
        "state_gb_per_rank": training.bytes_per_parameter(ranks) * count / _GIGA,
        "state_gb_all_ranks": ranks * training.bytes_per_parameter(ranks) * count / _GIGA,
    }
    if model is not None:
        parts = rank_memory(_model(model), training, vocabulary, [context], ranks, _kind(device))
        found["rank_gb"] = {name: value / _GIGA for name, value in vars(parts).items()}
        found["rank_gb"]["total"] = parts.total / _GIGA
    table = Table("GB", ("what", "GB"))
    table.add("weights in bf16", found["weights_gb"]["bf16"])
    table.add("weights in fp32", found["weights_gb"]["fp32"])
    table.add(f"training state on all {ranks} rank(s)", found["state_gb_all_ranks"])
    table.add("training state on each", found["state_gb_per_rank"])
    for name, value in found.get("rank_gb", {}).items():
        table.add(f"one rank: {name}", value)
    show(found, table, as_json, title=f"{tokens_and_parameters(count)} parameters")


@app.command()
def fit(
    model: _Model = "8b",
    vocabulary: _Vocabulary = 128_256,
    ranks: _Ranks = 8,
    gpu_memory: Annotated[float, typer.Option(min=0.1, help="Memory of one GPU in GB.")] = 80.0,
    context: _Context = 4_096,
    rows: _Rows = 1,
    as_json: _Json = False,
) -> None:
    """Say what to turn on for a model to fit, and in which order: what costs least comes first.

    ZeRO stages by arXiv 1910.02054, selective recomputation by arXiv 2205.05198, that of blocks by arXiv 1604.06174. Of
    a GPU's memory 92% is counted on; the rest is a rule of thumb for fragmentation and communication buffers.
    """
    from trainer.calc.fit import USABLE_SHARE, fewest_ranks, ladder

    assert model is not None
    shape, usable = _model(model), gpu_memory * _GIGA * USABLE_SHARE
    training = _settings("headrace calc fit", precision="bf16", bf16="native", micro_batch_rows=rows)
    rungs = ladder(shape, training, vocabulary, context, ranks, usable)
    enough = rungs[-1].fits
    found: dict[str, Any] = {
        "usable_gb": usable / _GIGA,
        "fits": enough,
        "measures": [
            {"measure": r.measure, "why": r.why, "rank_gb": r.memory.total / _GIGA, "fits": r.fits} for r in rungs
        ],
        "fewest_ranks": None if enough else fewest_ranks(shape, training, vocabulary, context, usable),
    }
    table = Table("GB on each rank", ("turn on", "GB", "fits", "because it"))
    for rung in rungs:
        table.add(rung.measure, rung.memory.total / _GIGA, "yes" if rung.fits else "no", rung.why)
    note = f"with these, it fits into {usable / _GIGA:.1f} GB"
    if not enough:
        more = found["fewest_ranks"]
        note = f"nothing of this is enough for {usable / _GIGA:.1f} GB; " + (
            f"{more} ranks are" if more else "no number of ranks is: shorten the context or take a smaller model"
        )
    show(found, table, as_json, title=f"{model} on {ranks} GPU(s) of {gpu_memory:g} GB", note=note)


@app.command()
def chinchilla(
    flops: Annotated[float, typer.Option(min=1.0, help="Training FLOPs, as 1e23.")], as_json: _Json = False
) -> None:
    """Say which size and how many tokens make the most of so many FLOPs, and the price of smaller for longer.

    L = E + A/N^alpha + B/D^beta and C = 6ND. Constants of Besiroglu et al. (arXiv 2404.10102): E 1.8172, A 482.01, B
    2085.43, alpha 0.3478, beta 0.3658. Those printed by Hoffmann et al. (arXiv 2203.15556) contradict their own table
    3: at the 5.76e23 FLOPs of Chinchilla they ask for 32 B parameters and 93 tokens for each, where the table has 67 B
    and 22. The 20-to-1 rule comes from that table; by it, 175 B parameters want 3.5 T tokens.
    """
    found: dict[str, Any] = {"flops": flops, "optimum": {}, "smaller_for_longer": []}
    table = Table("optimum", ("by", "parameters", "tokens", "loss", "tokens/parameter", "training FLOPs"))
    optima = {one.source: (*one.optimum(flops), one) for one in (law.BESIROGLU, law.HOFFMANN)}
    for source, (parameters, tokens, one) in optima.items():
        loss = one.loss(parameters, tokens)
        found["optimum"][source] = {"parameters": parameters, "tokens": tokens, "loss": loss}
        table.add(
            source, *map(tokens_and_parameters, (parameters, tokens)), f"{loss:.3f}", tokens / parameters, "1.00x"
        )
    parameters, tokens = law.rule_of_thumb(flops)
    found["optimum"]["rule of thumb, 20 tokens per parameter"] = {"parameters": parameters, "tokens": tokens}
    table.add("rule of thumb: 20 to 1", *map(tokens_and_parameters, (parameters, tokens)), "", 20.0, "1.00x")
    for smaller in law.smaller_for_longer(law.BESIROGLU, flops):
        reached = math.isfinite(smaller.tokens)
        entry = {
            name: value if reached or name in ("share", "parameters") else None for name, value in vars(smaller).items()
        }
        found["smaller_for_longer"].append(entry)
        shown = (tokens_and_parameters(smaller.tokens), "same", smaller.tokens / smaller.parameters)
        more = f"{smaller.more_compute:.2f}x"
        cells = (*shown, more) if reached else ("never", "", "", "")
        table.add(f"{smaller.share:.0%} of the first's size", tokens_and_parameters(smaller.parameters), *cells)
    show(found, table, as_json, title=f"{flops:.3g} FLOPs")


@app.command()
def cost(
    gpus: Annotated[int, typer.Option(min=1, help="GPUs.")],
    flops: Annotated[float | None, typer.Option(min=1.0, help="Training FLOPs; or --model and --tokens.")] = None,
    model: _Model = None,
    tokens: Annotated[float | None, typer.Option(min=1.0, help="Training tokens.")] = None,
    vocabulary: _Vocabulary = 128_256,
    context: _Context = 4_096,
    gpu: Annotated[str, typer.Option(help=f"GPU: {', '.join(costs.PEAK_FLOPS)}.")] = "h100",
    peak: Annotated[float | None, typer.Option(min=1.0, help="Peak FLOPs a second, instead of --gpu.")] = None,
    mfu: Annotated[float, typer.Option(min=0.001, max=1.0, help="Model FLOPs utilisation.")] = 0.4,
    price: Annotated[float, typer.Option(min=0.0, help="Price of a GPU and hour.")] = 2.5,
    as_json: _Json = False,
) -> None:
    """Say how many days a training takes, and its price.

    FLOPs per token are 6 per parameter that multiplies and 12 per layer, feature and token of context, and MFU is
    theirs over the peak (arXiv 2204.02311, appendix B). Peaks are dense bf16 by the vendor's data sheets.
    """
    if flops is None:
        if model is None or tokens is None:
            raise UserError("give --flops, or --model and --tokens", place="headrace calc cost")
        flops = tokens * costs.flops_per_token(_model(model), vocabulary, context)
    if peak is None and gpu not in costs.PEAK_FLOPS:
        known = ", ".join(costs.PEAK_FLOPS)
        raise UserError(f"the peak of {gpu!r} is not known", place="--gpu", remedy=f"Choose {known}, or give --peak")
    found = costs.cost(flops, gpus, peak or costs.PEAK_FLOPS[gpu], mfu, price)
    table = Table("cost", ("what", "value"))
    table.add("FLOPs", f"{found.flops:.3g}")
    table.add("GPU hours", f"{found.gpu_hours:,.0f}")
    table.add("days", f"{found.days:,.1f}")
    table.add("price", f"{found.price:,.0f}")
    show(vars(found), table, as_json, title=f"{gpus} GPU(s) at {mfu:.0%} of their peak")


@app.command()
def formats(
    number: Annotated[float, typer.Argument(help="Any number, as 0.1, 70000, 1e-8 or nan.")],
    as_json: _Json = False,
) -> None:
    """Say what becomes of a number in fp32, bf16, fp16 and FP8.

    IEEE 754 for fp32 and fp16; FP8 by arXiv 2209.05433. What is too large becomes infinity, or NaN in E4M3, which has
    no infinity; casts that saturate would stop at 448.
    """
    found = {}
    table = Table("formats", ("format", "becomes", "relative error", "bits", "largest", "smallest normal", "smallest"))
    for one in FORMATS:
        bits = one.encode(number)
        value = one.decode(bits)
        error = abs(value - number) / abs(number) if number and math.isfinite(number) else 0.0
        text = f"{bits:0{1 + one.exponent + one.mantissa}b}"
        spelled = f"{text[0]} {text[1 : 1 + one.exponent]} {text[1 + one.exponent :]}"
        limits = (float(one.largest), float(one.smallest_normal), float(one.smallest))
        found[one.name] = {"value": str(value) if not math.isfinite(value) else value, "bits": spelled}
        shown = f"{error:.2e}" if math.isfinite(error) else "lost"
        table.add(one.name, f"{value!r}", shown, spelled, *(f"{limit:.4g}" for limit in limits))
    show(found, table, as_json, title=f"{number!r}")

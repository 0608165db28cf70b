"""Moving limits on stored scores: what may be moved without judging again, and what may not.

Measured limits may be moved either way, because all scores are there. A limit that marks at once may be tightened only:
what it dropped was not judged by later stages, and its text is not kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pipelines.chain import build_chain, chain_section, early_values, fitted_languages
from pipelines.effects import check_languages, check_names
from pipelines.late import limits_section
from pipelines.recipe import Recipe, StageUse
from pipelines.workspace import Workspace
from shards.errors import UserError
from stages.base import Stage, early_rules, link_of, parameters
from stages.checks import ANY, Rule
from stages.limits import Bound


def chain_of(workspace: Workspace) -> list[Stage]:
    """Return the stages of a recipe, before any model is fitted."""
    return build_chain(workspace, dict.fromkeys((lm.language for lm in fitted_languages(workspace.recipe)), ""))


def obstacles(judged: Sequence[Stage], wanted: Sequence[Stage]) -> list[str]:
    """Return what stands in the way of applying ``wanted`` to what ``judged`` has measured; nothing if it can be done.

    Each is a sentence that names a stage.
    """
    names, asked = [link_of(stage) for stage in judged], [link_of(stage) for stage in wanted]
    if names != asked:
        return [f"the chain is another: {', '.join(asked)} for {', '.join(names)}"]
    found = [f"{link}: it judged by a language that a later stage set anew" for link in _overtaken(judged, wanted)]
    for before, after in zip(judged, wanted, strict=True):
        found += [f"{link_of(before)}: {why}" for why in _differences(before, after)]
    return found


def _overtaken(judged: Sequence[Stage], wanted: Sequence[Stage]) -> list[str]:
    """Return the stages whose limits by language differ, and were applied between two that set the language.

    The last of these gave the documents the language that is stored.
    """
    setters = [place for place, stage in enumerate(wanted) if stage.known_languages() is not None]
    last = max((place for place in setters if _is_shared(wanted, setters, place)), default=0)
    return [
        link_of(after)
        for before, after in list(zip(judged, wanted, strict=True))[setters[0] if setters else 0 : last]
        if early_rules(before) != early_rules(after)
        and any("language" in rule.groups() for rule in (*early_rules(before), *early_rules(after)))
    ]


def _is_shared(chain: Sequence[Stage], setters: Sequence[int], place: int) -> bool:
    """Return whether a document may have its language from an earlier stage than the one at ``place``."""
    mine = set(chain[place].domains)
    earlier = [set(chain[one].domains) for one in setters if one < place]
    return any(not mine or not other or mine & other for other in earlier)


def _differences(before: Stage, after: Stage) -> list[str]:
    limits = {name.partition(".")[0] for check in before.checks for name in check.parameters()}
    limits -= before.decides_measures
    had, has = _measuring(before, limits), _measuring(after, limits)
    moved = sorted(name for name in has if has[name] != had.get(name))
    if moved:
        return [f"{name} decides what is measured" for name in moved]
    return [
        f"{rule.check.reason} was dropped at once, and its limit is loosened"
        for old, rule in zip(early_rules(before), early_rules(after), strict=True)
        if not is_tighter(old, rule)
    ]


def _measuring(stage: Stage, limits: set[str]) -> dict[str, Any]:
    (section,) = chain_section([stage])
    _, _, origin, values, content, own = section
    return {"origin": origin, "files": [content, own], **{k: v for k, v in values.items() if k not in limits}}


def is_tighter(old: Rule, new: Rule) -> bool:
    """Return whether a check drops whatever it dropped before, and maybe more."""
    if old.drops_null and not new.drops_null:
        return False
    if not _bounds_tighter(old.least, new.least, 1) or not _bounds_tighter(old.greatest, new.greatest, -1):
        return False
    if old.allowed is not None and (new.allowed is None or not set(new.allowed) <= set(old.allowed)):
        return False
    return ANY in new.forbidden or set(old.forbidden) <= set(new.forbidden)


def _bounds_tighter(old: Bound | None, new: Bound | None, sign: int) -> bool:
    """Return whether every group has a limit that is no looser; ``sign`` is 1 for a least value, -1 for a greatest."""
    if old is None:
        return True
    if new is None:
        return not old.groups() and old.default is None
    if old.by is not None and new.by is not None and old.by != new.by:
        # Of two columns, any pair of values may meet in a document.
        firsts, seconds = [*old.steps.values(), old.default], [*new.steps.values(), new.default]
        return all(_step_tighter(first, second, sign) for first in firsts for second in seconds)
    groups = [*old.groups(), *new.groups(), "\0"]
    return all(_step_tighter(old.of_group(group), new.of_group(group), sign) for group in groups)


def _step_tighter(old: int | None, new: int | None, sign: int) -> bool:
    return old is None or (new is not None and sign * new >= sign * old)


def with_limits(workspace: Workspace, recipe: Recipe) -> Workspace:
    """Return the workspace of a run with another recipe of the same verdicts.

    Raises:
        UserError: if a limit was loosened that marked at once, something else was changed than limits of stages, or a
            limit names a language or a domain that no document can have.
    """
    changed = {name for name in type(recipe).model_fields if getattr(recipe, name) != getattr(workspace.recipe, name)}
    if rest := sorted(changed - {"stages"}):
        raise UserError(
            f"'rejudge' moves limits of stages, and {rest[0]!r} is something else",
            place=workspace.store.root,
            remedy=f"Use 'headrace run {workspace.store.root} KEY=VALUE': what depends on it is made anew",
        )
    found = replace(workspace, recipe=recipe, judged=())
    judged, wanted = chain_of(workspace.as_judged()), chain_of(found)
    check_names(recipe)
    check_languages(wanted, recipe)
    if why := obstacles(judged, wanted):
        raise UserError(
            f"stored scores cannot answer this: {why[0]}",
            place=workspace.store.root,
            remedy=f"Documents must be judged again for it: headrace run {workspace.store.root} KEY=VALUE",
        )
    return carried(found, workspace.judged or workspace.recipe.stages)


def carried(workspace: Workspace, judged: Sequence[StageUse]) -> Workspace:
    """Return a workspace that goes on with verdicts made by the stages ``judged``, as far as they can serve.

    Where they cannot, or are what the recipe says, it has none of its own: documents are judged by the recipe.
    """
    before = replace(workspace, judged=tuple(judged))
    try:
        old = chain_of(before.as_judged())
    except UserError:
        # Stages that are gone, or a file of theirs: judged by what there is now.
        return workspace
    new = chain_of(workspace)
    same = [early_of(stage) for stage in old] == [early_of(stage) for stage in new]
    return workspace if same or obstacles(old, new) else before


def early_of(stage: Stage) -> list[Any]:
    """Return the limits of a stage that mark at once, for a comparison."""
    ((_, _, limits),) = limits_section([stage])
    return [link_of(stage), limits | {k: v for k, v in early_values(stage, parameters(stage)).items() if k in limits}]

from __future__ import annotations

import pytest

from shards.errors import UserError
from shards.presets import PRESETS, preset
from shards.training import ModelSettings, parse_settings


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_has_the_size_in_its_name(name: str) -> None:
    model = ModelSettings.model_validate({"preset": name})
    said = float(name[:-1]) * {"m": 1e6, "b": 1e9}[name[-1]]
    counted = model.layers * model.block_parameters if name.endswith("m") else model.parameters(128_256)
    assert counted == pytest.approx(said, rel=0.25)


def test_published_sizes_are_met_exactly() -> None:
    sizes = {"70b": (128_256, 70_553_706_496), "8b": (128_256, 8_030_261_248), "7b": (32_000, 6_738_415_616)}
    for name, (vocabulary, parameters) in sizes.items():
        assert ModelSettings.model_validate({"preset": name}).parameters(vocabulary) == parameters


def test_other_keys_override_a_preset() -> None:
    model = parse_settings(ModelSettings, {"preset": "8b", "layers": 2}, "here")
    assert (model.layers, model.width) == (2, 4096)
    assert parse_settings(ModelSettings, model.model_dump(), "here") == model


def test_an_unknown_preset_has_its_neighbour_named() -> None:
    with pytest.raises(UserError, match="there is no preset '7bb'") as caught:
        preset("7bb")
    assert "Did you mean '7b'" in caught.value.remedy
    with pytest.raises(UserError, match=r"no preset .7bb.\. Did you mean .7b."):
        parse_settings(ModelSettings, {"preset": "7bb"}, "here")

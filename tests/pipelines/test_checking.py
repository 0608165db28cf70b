"""What a run is refused for, and what need not be loaded to say so. Tests of the driver check whole recipes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.checking import JUDGE
from pipelines.passes.judge import Judge

ROOT = Path(__file__).resolve().parents[2]
LATE = ("apache_beam", "torch", "transformers", "tokenizers", "fastokens", "pyarrow.dataset", "kenlm", "fasttext")

SOURCE = '[[sources]]\nglob = "*.jsonl"\n'


def test_the_pass_that_reads_is_called_as_here() -> None:
    assert Judge.name == JUDGE


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        ("nonsense = 1\n" + SOURCE, "unknown key 'nonsense'"),
        (SOURCE.replace("*", "gone"), "gone.jsonl"),
        (SOURCE + '[[stages]]\nuse = "gopher_quality_v2"\nmin_wordz = 3\n', "min_wordz"),
        (SOURCE + '[[stages]]\nuse = "url_blacklist_v1"\nlists = ["gone.txt"]\n', "there is no blacklist at"),
        (
            SOURCE + '[[stages]]\nuse = "gopher_quality_v2"\nmin_words = { percentile = 5, of = ["gone.txt"] }\n',
            "'gone.txt' matches no file",
        ),
        (
            SOURCE + '[[stages]]\nuse = "gopher_quality_v2"\nmin_words = 1000\nmax_words = 100\n',
            "min_words is 1000, and max_words is 100: every document would be dropped",
        ),
        (SOURCE + '[[lm]]\nlanguage = "en"\ncorpus = ["gone.txt"]\n', "'gone.txt' matches no file"),
    ],
)
def test_a_run_is_refused_without_loading_beam_or_a_model(tmp_path: Path, recipe: str, said: str) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    path = tmp_path / "recipe.toml"
    path.write_text(recipe)
    code = f"""
import sys
from pipelines.cli import main
try:
    main(["run", {str(path)!r}, "--out", {str(tmp_path / "out")!r}])
except SystemExit as end:
    loaded = [name for name in {LATE!r} if name in sys.modules]
    print(end.code, loaded)
"""
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout == "2 []\n"
    assert said in found.stderr
    assert not (tmp_path / "out").exists()

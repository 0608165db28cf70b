from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers

from shards.files import hash_file
from trainer.tokens import tokenizer_of


def test_the_tokeniser_is_the_one_with_the_digest(tmp_path: Path) -> None:
    (tmp_path / "tokenizer").mkdir()
    digests = []
    for number, words in enumerate((("a", "b"), ("b", "a"))):
        tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token=words[0]))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        path = tmp_path / f"tokenizer/tokenizer-{number}.json"
        tokenizer.save(str(path))
        digests.append(hash_file(path)[0])
    for digest, expected in zip(digests, ([0, 1], [1, 0]), strict=True):
        found = tokenizer_of(tmp_path, digest)
        assert found is not None
        assert found.encode("a b") == expected
        assert found.decode(expected) == "a b"
    assert tokenizer_of(tmp_path, "another") is None
    assert tokenizer_of(tmp_path / "nowhere", digests[0]) is None

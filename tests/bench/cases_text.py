"""The links that judge and encode text: language, heuristics, perplexity, fingerprints, tokens; and fitting a model."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path

import fasttext
import kenlm
import pyarrow as pa
from cases_read import apply, exhaust, extract_all, inflate
from corpus import Corpus
from datasketch import MinHash
from harness import Case
from tokenizers import Tokenizer

from shards.files import open_input
from stages.judges.extract_html import ExtractHtml
from stages.judges.fingerprint import Fingerprint
from stages.judges.gopher_quality import GopherQuality
from stages.judges.gopher_repetition import GopherRepetition
from stages.judges.language import Language, default_model
from stages.judges.perplexity import Perplexity
from stages.judges.url_blacklist import UrlBlacklist
from stages.lm.kneser_ney import fit
from stages.lm.normalise import lm_lines
from stages.marking import mark
from stages.readers import Source, read
from stages.tokenizer import Encoder, fit_bpe

ORDER = 5
VOCABULARY = 16_384
FITTED_BYTES = 2_000_000
WORD = re.compile(r"\w+")


class Models:
    """What has to be fitted before the links can be measured, on the first ``FITTED_BYTES`` of the documents."""

    def __init__(self, corpus: Corpus, folder: Path) -> None:
        sample, size = [], 0
        for text in corpus.texts:
            if size >= FITTED_BYTES:
                break
            sample.append(text)
            size += len(text)
        self.lines = [line for text in sample for line in lm_lines(text)]
        self.lm = folder / "en.arpa"
        fit(self.lines, ORDER).write_arpa(self.lm)
        self.tokenizer = folder / "tokenizer.json"
        self.tokenizer.write_text(fit_bpe(sample, VOCABULARY, "<|endoftext|>"))


def cases(corpus: Corpus, models: Models) -> Iterator[Case]:
    """Yield the cases."""
    texts, batches = corpus.texts, corpus.batches
    documents, size = len(texts), corpus.text_bytes
    split = {"str.split alone": lambda: [text.split() for text in texts]}
    yield _language(corpus)
    for name, stage in (("gopher_quality", GopherQuality()), ("gopher_repetition", GopherRepetition())):
        yield Case(
            name,
            lambda stage=stage: apply(stage, batches),
            split,
            documents,
            size,
            note="no native library: the floor only cuts the text into words",
        )
    yield _perplexity(corpus, models)
    yield _fingerprint(corpus)
    yield _tokenise(corpus, models)
    words = sum(line.count(" ") + 1 for line in models.lines)
    yield Case(
        "fit_lm",
        lambda: fit(models.lines, ORDER),
        {"str.split alone": lambda: [line.split() for line in models.lines]},
        len(models.lines),
        sum(len(line.encode()) for line in models.lines),
        words,
        note=f"modified Kneser-Ney, order {ORDER}, in memory; documents are lines",
    )
    arpa = fit(models.lines, ORDER)
    yield Case(
        "write_arpa",
        lambda: arpa.write_arpa(io.BytesIO()),
        {"formatting two floats a line": lambda: [b"%.7g\t%.7g\n" % (i * -1e-5, i * 1e-6) for i in range(_rows(arpa))]},
        _rows(arpa),
        note="documents are n-grams",
    )
    yield _chain(corpus, models)


def _rows(model: object) -> int:
    return sum(len(table.log10_prob) for table in model.tables)


def _language(corpus: Corpus) -> Case:
    stage = Language(keep=("en",))
    model = fasttext.load_model(default_model())
    texts = [_windows(text) for text in corpus.texts]
    whole = [text.replace("\n", " ") for text in corpus.texts]
    return Case(
        "language",
        lambda: apply(stage, corpus.batches),
        {"fastText alone": lambda: model.predict(texts), "fastText on whole texts": lambda: model.predict(whole)},
        len(texts),
        corpus.text_bytes,
        note="fastText alone is given the same three windows of each text, cut before",
    )


def _kenlm(path: Path) -> kenlm.Model:
    config = kenlm.Config()
    config.show_progress = False
    config.arpa_complain = kenlm.ARPALoadComplain.NONE
    return kenlm.Model(str(path), config)


def _windows(text: str) -> str:
    text = text.strip()
    if len(text) > 1_500:
        middle = (len(text) - 500) // 2
        text = f"{text[:500]} {text[middle : middle + 500]} {text[-500:]}"
    return text.replace("\n", " ")


def _perplexity(corpus: Corpus, models: Models) -> Case:
    stage = Perplexity(models={"en": str(models.lm)})
    model = _kenlm(models.lm)
    lines = [lm_lines(text) for text in corpus.texts]

    def score() -> None:
        for document in lines:
            for line in document:
                model.score(line, bos=True, eos=True)

    return Case(
        "perplexity",
        lambda: apply(stage, corpus.batches),
        {"kenlm alone": score, "normalising alone": lambda: [lm_lines(text) for text in corpus.texts]},
        len(lines),
        corpus.text_bytes,
        sum(line.count(" ") + 2 for document in lines for line in document),
        note="kenlm alone is given normalised lines",
    )


def _fingerprint(corpus: Corpus) -> Case:
    stage = Fingerprint()
    shingles = []
    for text in corpus.texts:
        words = [word.encode() for word in WORD.findall(text.lower())]
        shingles.append(list({b" ".join(words[at : at + 5]) for at in range(max(1, len(words) - 4))}))

    def peer() -> None:
        for document in shingles:
            MinHash(num_perm=stage.permutations).update_batch(document)

    return Case(
        "fingerprint",
        lambda: apply(stage, corpus.batches),
        {"datasketch alone": peer},
        len(shingles),
        corpus.text_bytes,
        note=f"{stage.permutations} permutations; datasketch is given its shingles, ours cuts and hashes them too",
    )


def _tokenise(corpus: Corpus, models: Models) -> Case:
    encoder = Encoder(str(models.tokenizer))
    tokenizer = Tokenizer.from_file(str(models.tokenizer))
    return Case(
        "tokenise",
        lambda: [encoder.encode(batch.column("text").to_pylist()) for batch in corpus.batches],
        {"tokenizers alone": lambda: tokenizer.encode_batch_fast(corpus.texts, add_special_tokens=False)},
        len(corpus.texts),
        corpus.text_bytes,
        len(encoder.encode(corpus.texts)[0]),
        note=f"byte-level BPE of {VOCABULARY:,}",
    )


def _chain(corpus: Corpus, models: Models) -> Case:
    chain = [
        UrlBlacklist(lists=(str(corpus.blacklist),)),
        ExtractHtml(),
        Language(keep=("en",)),
        GopherQuality(),
        GopherRepetition(),
        Perplexity(models={"en": str(models.lm)}),
        Fingerprint(),
    ]

    def ours() -> None:
        for batch in read(Source(0, str(corpus.warc)), open_input):
            for stage in chain:
                batch = mark(stage, batch)

    model, lid = _kenlm(models.lm), fasttext.load_model(default_model())
    pages = [payload.as_py().decode() for batch in corpus.pages for payload in batch.column("payload")]
    # What the stages before perplexity drop, kenlm is not given either.
    judged = [mark(stage, batch) for batch in corpus.pages for stage in chain[:1]]
    for stage in chain[1:5]:
        judged = [mark(stage, batch) for batch in judged]
    kept = [batch.filter(batch.column("dropped_by").is_null()).column("text") for batch in judged]
    lines = [lm_lines(text) for text in pa.chunked_array(kept).to_pylist()]

    def natives() -> None:
        inflate(corpus.warc)
        lid.predict([_windows(text) for text in extract_all(pages)])
        for document in lines:
            for line in document:
                model.score(line, bos=True, eos=True)

    return Case(
        "chain",
        ours,
        {"zlib, resiliparse, fastText, kenlm": natives, "reading alone": lambda: exhaust(corpus.warc)},
        len(corpus.texts),
        corpus.text_bytes,
        note="WARC to fingerprints, every stage in order, without Beam; input counted as text",
    )

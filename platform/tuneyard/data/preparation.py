"""Prepares training data: reads, checks, tokenises and packs it, and holds out validation rows. The result is cached."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from tuneyard.api import BadInput, Source, TrainData
from tuneyard.data.cache import MANIFEST, TOLD, cache_root, cached_folder, entry_of
from tuneyard.data.chat import ChatTemplate, template_text
from tuneyard.data.content import Content, in_brackets, knows, layout_of, without_places
from tuneyard.data.encoders import encoder_of
from tuneyard.data.holdout import held_out_items
from tuneyard.data.losses import Losses
from tuneyard.data.mixture import Mixture
from tuneyard.data.order import MixedRowOrder, RowOrder
from tuneyard.data.packing import efficiency, laid_out
from tuneyard.data.preparation_progress import Progress, why_prepared
from tuneyard.data.prepared_order import PreparedOrder
from tuneyard.data.prepared_samples import prepared_samples
from tuneyard.data.prompt_template import saved_template
from tuneyard.data.report import DataReport
from tuneyard.data.roles import Roles
from tuneyard.data.samples import Objective, Placed, Tally
from tuneyard.data.sources import Located, locate
from tuneyard.data.stream.split_order import Sequences
from tuneyard.data.stream.splits import Split, sequences_of
from tuneyard.data.stream.windows import Windows
from tuneyard.data.token_rows import TokenFiles
from tuneyard.data.tokens import Encoder, encode_all
from tuneyard.data.turns import end_text, ends_last_answer
from tuneyard.data.way import Ways
from tuneyard.tracking import Emit, Stage, Warned, silent

if TYPE_CHECKING:
    from tuneyard.data.streamed import Streamed

_MORE_SAMPLES = "raise data.maxLength, lower data.validationFraction, or check data.lossOn and the weights of turns"
CODE_VERSION = 11
"""Part of every cache key. Raise it with every change after which the same input gives other rows."""
_ENTRY_VERSION = 2
"""Part of the key of an entry alone, and not of a stream's. Raise it with every change of an entry's files that leaves rows the same."""
_OF_EARLIER_KEYS: Mapping[str, Any] = MappingProxyType({"validation_files": [], "validation": None})
"""Entries of earlier versions also held rows of `data.validation`. Those without keep their names."""
_SEVERAL_PROCESSES_FROM_BYTES = 1 << 20
MAX_PROCESSES = 32
_BACK = "restore the data and their settings to resume, or start again in another output"
_UNPROVEN = "an earlier version of Tuneyard wrote the checkpoint, which does not prove that {} has the same rows as then"
_WRITTEN_ANEW = "files of {} were copied or written anew since the checkpoint; their sizes and a sample of their rows are the same"
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_ANOTHER_START = "continue with the data and the version of the checkpoint, or start again in another output"
_NO_PART_OF_THE_ROWS = {
    *("source", "from_task", "path", "shuffle", "show_sample", "validation", "chat_template", "images"),
    *("mix", "temperature", "when_exhausted", "streaming", "workers", "service", "shared"),
}
"""Fields that change no row, or are part of the key in another form."""


@dataclass(frozen=True)
class Prepared:
    """`train` and `validation` are memory-mapped `datasets.Dataset`s.

    Columns: input_ids, labels (-100: no loss), position_ids (where a row may hold several samples; 0 starts one), length. For dpo, the
    samples of a row are chosen and rejected in turn.
    """

    train: Any
    validation: Any | None
    report: DataReport
    cached: bool
    order: RowOrder
    mixture: Mixture | None = None
    """For several data sets: the part at each position of `order`."""
    streams: tuple[tuple[str, Streamed], ...] = ()
    """Streamed rows by the name of their part (empty for one data set)."""
    parts: tuple[Prepared, ...] = ()
    """The parts of a mixture."""
    content: Content | None = None
    """What the rows are; None for streams, whose cursors know it, and for mixtures."""
    ways: Ways = field(default_factory=dict)
    """How the rows of each data set are made. A checkpoint stores them, and an attempt that resumes keeps them."""

    def cursors(self, position: int) -> dict[str, Any]:
        """The cursor of each stream at a position of `order`, and the identity of each order of prepared rows, for `place`.

        Waits for all rows up to the position.
        """
        orders = {name: {"order": part.order.identity} for name, part in self._whole.items() if isinstance(part.order, PreparedOrder)}
        if self.mixture is None:
            return orders | {name: rows.cursor(position) for name, rows in self.streams}
        before = dict(zip((part.name for part in self.mixture.parts), self.mixture.counts(0, position), strict=True))
        return orders | {name: rows.cursor(before[name]) for name, rows in self.streams}

    @property
    def contents(self) -> dict[str, Any]:
        """The record of the content of each part, for `place`. A checkpoint stores it beside the cursors, where earlier versions of
        Tuneyard overlook it.
        """
        whole = {name: part.content.record for name, part in self._whole.items() if part.content is not None}
        return whole | {name: {"kind": "stream", "mark": rows.mark} for name, rows in self.streams if rows.mark}

    def place(
        self, cursors: Mapping[str, Any], contents: Mapping[str, Any] = _NOTHING, changed: Mapping[str, str] = _NOTHING
    ) -> str | None:
        """Resume from cursors and contents of an earlier attempt. Returns a warning where they prove less than they do today.

        `changed`: settings of the data that have changed since: field -> words.
        Raises BadInput where the rows have changed since, or an earlier version of Tuneyard used another order of rows.
        """
        unproven, written_anew, settings = list[str](), list[str](), in_brackets(list((without_places(changed) or changed).values()))
        for name, part in self._whole.items():
            if part.content is not None and knows(contents.get(name), part.content):
                part.content.check(contents[name], part.report.source, changed)
            elif part.content is not None:
                unproven.append(part.report.source)
            order = part.order
            if not isinstance(order, PreparedOrder):
                continue
            if name in cursors:
                if cursors[name] != {"order": order.identity}:
                    raise _ordered_otherwise(part.report.source, cursors[name], settings, same_rows=name in contents)
            elif self.mixture is not None or not (order.is_one_permutation and (len(order.rows) == 1 or not self.report.packed)):
                raise BadInput("the checkpoint was written by a version of Tuneyard that took rows in another order", _ANOTHER_START)
        for name, rows in self.streams:
            if name in cursors:
                try:
                    rows.place(cursors[name])
                except BadInput as error:
                    raise BadInput(f"{error.cause}{settings}", error.next_step) from error
            if contents.get(name, {}).get("mark", rows.mark) != rows.mark:
                written_anew.append(self._source_of(name))
        sentences = [_UNPROVEN.format(", ".join(unproven))] if unproven else []
        sentences += [_WRITTEN_ANEW.format(", ".join(written_anew))] if written_anew else []
        return "; ".join(sentences) or None

    def _source_of(self, name: str) -> str:
        parts = [] if self.mixture is None else zip((part.name for part in self.mixture.parts), self.parts, strict=True)
        return next((part.report.source for own, part in parts if own == name), self.report.source)

    @property
    def _whole(self) -> dict[str, Prepared]:
        """Data sets that are not streamed, by the names of their parts (empty for one data set)."""
        named = zip((part.name for part in self.mixture.parts), self.parts, strict=True) if self.mixture is not None else [("", self)]
        return {name: part for name, part in named if not part.streams}

    @property
    def mixed(self) -> MixedRowOrder | None:
        """`order`, where the data are a mixture."""
        return cast(MixedRowOrder, self.order) if self.mixture is not None else None

    @property
    def chat_template(self) -> str | None:
        """The template to set on the tokenizer before it is saved; None: keep its own."""
        return self.report.chat_template

    @property
    def prompt_template(self) -> str:
        """The template of prompts to save with the tokenizer; empty where there is none."""
        return self.report.prompt_template

    @property
    def chats(self) -> bool:
        """Whether a chat template renders the samples."""
        return bool(self.report.template)


def prepare(
    spec: TrainData,
    tokenizer: Any,
    *,
    objective: Objective,
    seed: int,
    cache_dir: str | Path | None = None,
    service: Path | None = None,
    emit: Emit = silent,
    task: str = "",
    steps: int | None = None,
    ways: Ways | None = None,
) -> Prepared:
    """Read, tokenise and pack the data of `spec` (with `from` resolved to `source`), or find the result in the cache.

    `service`: the folder in which the ingestion service of this machine finds streams. `steps`: those of the task; None: its epochs are
    counted. `ways`: of each data set, as `choose_ways` gives them; None: choose them here.
    Several processes may call this function with the same input: one works, the others wait. The result depends on the content alone.
    Raises BadInput (unusable data, with file and line), StorageError (source not reachable, disk full).
    """
    if ways is None:
        from tuneyard.data.ways import choose_ways  # late: it imports `is_prepared`

        ways = choose_ways(spec, tokenizer, objective=objective, seed=seed, steps=steps, cache_dir=cache_dir)
    how: Any = {"objective": objective, "seed": seed, "cache_dir": cache_dir, "service": service, "emit": emit, "task": task, "ways": ways}
    if spec.validation is not None:
        from tuneyard.data.validation import with_validation  # late: it imports `prepare`

        return with_validation(spec, tokenizer, steps=steps, **how)
    if spec.mix:
        from tuneyard.data.mixing import prepare_mixture  # late: it imports `prepare`

        return prepare_mixture(spec, tokenizer, steps=steps, **how)
    train = located_source(spec)
    if ways[""].streamed:
        from tuneyard.data.streaming import prepare_stream  # late: it imports `Prepared`

        return prepare_stream(spec, train, tokenizer, **how)
    work = _Work(spec, tokenizer, objective, seed, train, Progress(emit, task, why_prepared(spec, steps)))
    entry, cached = cached_folder(
        cache_root(cache_dir) / "tokens",
        _cache_key(work),
        work.build,
        on_wait=lambda holder: emit(Stage(task=task, name=f"waiting for {holder} to tokenise")),
        on_told=work.progress.heard,
    )
    report = DataReport(**json.loads((entry / "report.json").read_text()) | {"source": train.uri})  # the same data may have moved
    for message in report.warnings():
        emit(Warned(task=task, message=message))
    rows: Any = _rows(entry / "train.arrow")
    held_out_rows = _rows(entry / "validation.arrow")
    splits = json.loads((entry / "splits.json").read_text())
    content = Content.of_entry(entry, _inputs(work), read=report.samples, rows="train.arrow", layout=splits.get("layout", ""))
    order = _order(splits, seed, shuffle=spec.shuffle, among=ways[""].among)
    return Prepared(rows, held_out_rows, report, cached, order, content=content, ways=ways)


def _ordered_otherwise(uri: str, cursor: Mapping[str, Any], settings: str, *, same_rows: bool) -> BadInput:
    then = "when the checkpoint was written"
    if "order" not in cursor:
        return BadInput(f"{uri} was streamed {then}, and is prepared whole now{settings}", _BACK)
    what = "its rows in another order" if same_rows else "other rows"
    return BadInput(f"{uri} has {what} than {then}{settings}", _BACK)


def located_source(source: Source) -> Located:
    if source.source is None:
        raise BadInput(f"data.from: {source.from_task} is not resolved", "run it through `tuneyard run`, or give data.source")
    return locate(source.source, file_type=source.file_type, split=source.split, sheet=source.sheet)


def _rows(path: Path) -> Any | None:
    if not path.exists():
        return None
    import datasets

    return datasets.Dataset.from_file(str(path))


def _order(splits: Mapping[str, Any], seed: int, *, shuffle: bool, among: int) -> RowOrder:
    """The order of a stream over the same splits."""
    sequences = splits["sequences"] and Sequences.from_dict(splits["sequences"])
    return PreparedOrder(Windows.over(splits["bytes"], seed, shuffle=shuffle, sequences=sequences, among=among), tuple(splits["rows"]))


def is_prepared(
    spec: TrainData, located: Located, tokenizer: Any, *, objective: Objective, seed: int, cache_dir: str | Path | None = None
) -> bool:
    """Whether the cache has an entry for these data. Local files are hashed; the files of the entry are not. Raises BadInput."""
    key = _cache_key(_Work(spec, tokenizer, objective, seed, located, Progress(silent, "", "")))
    return (entry_of(cache_root(cache_dir) / "tokens", key) / MANIFEST).exists()


def row_settings(spec: TrainData, tokenizer: Any, objective: Objective) -> dict[str, Any]:
    """All inputs of rows besides the files, the seed and the libraries."""
    return {
        "code": CODE_VERSION,
        "spec": spec.model_dump(mode="json", exclude=_NO_PART_OF_THE_ROWS | (set() if spec.template else {"template"})),
        "objective": objective if objective != "dpo" else "dpo as tokens",  # earlier versions kept texts under dpo
        "tokenizer": tokenizer_identity(tokenizer),
        "template": template_text(spec.chat_template) if spec.chat_template else None,
    }


def _cache_key(work: _Work) -> dict[str, Any]:
    return {
        **row_settings(work.spec, work.tokenizer, work.objective),
        "entry": _ENTRY_VERSION,
        "libraries": dict(_libraries()),
        "files": [[file.reader, file.identity()] for file in work.train.files],
        **_OF_EARLIER_KEYS,
        "seed": work.seed if work.spec.validation_fraction else 0,
    }


def _inputs(work: _Work) -> dict[str, Any]:
    """Inputs of tokens beside the samples and the fields of the task, by the names of `Content.about`."""
    settings = row_settings(work.spec, work.tokenizer, work.objective)
    return {name: settings[name] for name in ("code", "tokenizer", "template")} | {"libraries": dict(_libraries())}


@functools.cache
def _libraries() -> dict[str, str]:
    return {name: version(name) for name in ("tokenizers", "transformers", "trl")}


def tokenizer_identity(tokenizer: Any) -> str:
    """A hash of a tokenizer's behaviour: vocabulary, rules, special tokens and chat template."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    rules = json.loads(backend.to_str()) if backend is not None else sorted(tokenizer.get_vocab().items())
    if isinstance(rules, dict):  # earlier calls leave both behind; they do not describe the tokenizer
        rules = {k: v for k, v in rules.items() if k not in ("truncation", "padding")}
    about = [type(tokenizer).__name__, rules, tokenizer.special_tokens_map, tokenizer.chat_template]
    return blake2b(json.dumps(about, default=str).encode(), digest_size=16).hexdigest()


def template_to_save(tokenizer: Any, template: ChatTemplate, *, reasons: bool, tools: bool) -> str | None:
    """The Jinja to save with the tokenizer, for samples with `reasons` or `tools`; None: its own template stays."""
    saved = saved_template(template.prompts, tokenizer.special_tokens_map, thinking=reasons, tools=tools)
    return saved if template.replaces or saved != tokenizer.get_chat_template() else None


def end_note(spec: TrainData, tokenizer: Any, template: ChatTemplate | None) -> str | None:
    """A warning where the model does not learn the end of answers; None where it does."""
    if template is None or ends_last_answer(tokenizer, template.text):
        return None
    if spec.loss_on != "all" and end_text(tokenizer, template.text) is not None:
        return None  # the encoder adds it
    return f"{template} puts no token after the last answer of a chat: the model does not learn where to stop"


@dataclass
class _Work:
    """Builds one cache entry."""

    spec: TrainData
    tokenizer: Any
    objective: Objective
    seed: int
    train: Located
    progress: Progress

    def build(self, folder: Path) -> None:
        self.progress.tell_in(folder / TOLD)
        tally = Tally(self.train.uri, self.spec.max_bad_fraction)
        report = self._build(folder, tally)
        (folder / "report.json").write_text(json.dumps(report.to_dict()))

    def _build(self, folder: Path, tally: Tally) -> DataReport:
        roles, splits, samples = prepared_samples(self.train, tally, spec=self.spec, objective=self.objective)
        encoder = encoder_of(self.spec, self.tokenizer, roles, self.objective)
        packed = self.spec.pack or encoder.together > 1
        loss_about = Losses()
        items = self._encode(folder, encoder, samples, splits, tally, loss_about)
        aside = held_out_items(items.hashes, self.spec.validation_fraction, self.seed)
        rows = self._layout(items, np.flatnonzero(~aside), encoder)
        if not rows:
            raise BadInput(f"{self.train.uri}: no sample is left to train on{loss_about.why_none()}", _MORE_SAMPLES)
        with_loss = items.write(folder / "train.arrow", rows, packed=packed)
        items.write_content(folder, np.flatnonzero(~aside))
        of_splits = np.bincount(items.splits[[row[0] for row in rows]], minlength=len(splits))
        sequences = sequences_of(self.train.files, splits)
        about = {"bytes": [split.size_bytes for split in splits], "sequences": sequences and asdict(sequences), "rows": of_splits.tolist()}
        (folder / "splits.json").write_text(json.dumps(about | {"layout": layout_of(rows) if packed else ""}))
        validation_rows = self._layout(items, np.flatnonzero(aside), encoder)
        if validation_rows:
            items.write(folder / "validation.arrow", validation_rows, packed=packed)
        items.discard()
        tokens = int(items.lengths[~aside].sum())
        return self._report(
            roles,
            tally,
            rows=len(rows),
            validation_rows=len(validation_rows),
            tokens=tokens,
            loss_tokens=with_loss,
            packing_efficiency=efficiency(len(rows), tokens, self.spec.max_length * encoder.together),
            losses=loss_about,
            template=encoder.template,
        )

    def _encode(
        self, folder: Path, encoder: Encoder, samples: Iterator[Placed], splits: Sequence[Split], tally: Tally, losses: Losses
    ) -> TokenFiles:
        items = TokenFiles(folder, "train")
        available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        processes = min(available, MAX_PROCESSES) if self.train.size_bytes >= _SEVERAL_PROCESSES_FROM_BYTES else 1
        self.progress.begin(splits, self.spec.limit)
        for encoded in encode_all(encoder, samples, processes):
            items.append(encoded)
            losses.add(encoded)
            for place, reason, advice in encoded.bad:
                tally.became_bad(place, reason, advice=advice)
            self.progress.made(encoded)
        self.progress.end()
        items.finish()
        tally.check()
        return items

    def _layout(self, items: TokenFiles, chosen: npt.NDArray[np.int64], encoder: Encoder) -> list[list[int]]:
        """Rows of item numbers: packed within each split, as in a stream, or one item (one pair) per row."""
        if self.spec.pack:
            self.progress.packs(len(chosen))
        borders = np.flatnonzero(np.diff(items.splits[chosen])) + 1
        groups = np.split(chosen, borders)
        rows = (laid_out(items.lengths, group, self.spec.max_length, pack=self.spec.pack, together=encoder.together) for group in groups)
        return [row for of_group in rows for row in of_group]

    def _report(
        self,
        roles: Roles,
        tally: Tally,
        *,
        rows: int,
        validation_rows: int,
        tokens: int,
        loss_tokens: int,
        packing_efficiency: float,
        losses: Losses,
        template: ChatTemplate | None,
    ) -> DataReport:
        return DataReport(
            source=self.train.uri,
            format=roles.format,
            why=roles.why,
            files=len(self.train.files),
            samples=tally.good,
            rows=rows,
            validation_rows=validation_rows,
            max_length=self.spec.max_length,
            packed=self.spec.pack,
            tokens=tokens,
            loss_tokens=loss_tokens,
            packing_efficiency=packing_efficiency,
            truncated=losses.truncated,
            dropped=losses.dropped,
            cut_answers=losses.cut_answers,
            alike=losses.alike,
            dropped_examples=losses.dropped_examples,
            left_out=tally.left_out,
            bad=tally.bad,
            bad_examples=tally.bad_examples,
            template=template.origin if template else "",
            prompt_template=roles.template,
            reasons=losses.reasons,
            tools=losses.tools,
            chat_template=template_to_save(self.tokenizer, template, reasons=losses.reasons, tools=losses.tools) if template else None,
            notes=[
                *self.train.notes,
                *roles.notes(),
                *losses.notes(),
                *filter(None, [end_note(self.spec, self.tokenizer, template)]),
            ],
        )

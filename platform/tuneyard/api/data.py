"""Sources of a task's samples, and the roles of their columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic.alias_generators import to_camel

from tuneyard.api.base import Fields, Name, located
from tuneyard.api.lm_eval import LmEval, other_fields
from tuneyard.api.prompt_templates import NAMED, prompt_template

Format = Literal["auto", "chat", "prompt-completion", "preference", "text"]
FileType = Literal["auto", "parquet", "jsonl", "json", "csv", "text", "arrow", "excel", "hf"]
Speaker = Literal["system", "developer", "user", "assistant", "tool"]


class Source(Fields):
    """A data set: a URI, or a path inside the output of an earlier task of the job."""

    source: str | None = Field(
        default=None,
        max_length=4096,
        description="path or URI of a file, a folder or a glob (file, s3, gs, hdfs, webhdfs), or hf://owner/name; "
        "relative paths start at the folder of the JobSpec file, and are shipped by `tuneyard submit`; exactly one of source and from",
    )
    from_task: Name | None = Field(
        default=None, alias="from", description="name of an earlier task whose output holds the data; exactly one of source and from"
    )
    path: str | None = Field(default=None, description="path inside the output of `from`; default: all of it")
    split: str | None = Field(default=None, description="split of a Hugging Face data set; default: train")
    file_type: FileType = Field(default="auto", description="by file ending unless given; hf: folders that `save_to_disk` made, as arrow")
    columns: dict[str, str] = Field(
        default_factory=dict,
        description="role -> column, or path of a value such as body.messages or answers.text[0], if detection guesses wrong: messages, "
        "system, tools, prompt, input, completion, chosen, rejected, text",
    )
    roles: dict[str, Speaker] = Field(
        default_factory=dict,
        description="speaker -> role in a chat, for names of speakers that are not known, such as customer: user",
    )
    template: str | None = Field(
        default=None,
        min_length=1,
        max_length=100_000,
        description="the prompt of each row: text with columns in braces, such as 'Summarize: {article}', or a name: "
        f"{', '.join(NAMED)}; {{prompt}} is the row's own prompt; default: that prompt, and in score tasks as in the model's training",
    )
    sheet: str | None = Field(
        default=None,
        min_length=1,
        max_length=255,
        description="sheet of an Excel workbook; default: the only one that is visible and filled",
    )
    limit: int | None = Field(default=None, ge=1, description="use the first N samples only; default: all")

    @field_validator("template")
    @classmethod
    def _has_places(cls, template: str | None) -> str | None:
        if template is not None:
            prompt_template(template)
        return template

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        self.check_place()
        return self

    def check_place(self) -> None:
        """Raises ValueError unless exactly one place is named."""
        if (self.source is None) == (self.from_task is None):
            raise ValueError("give exactly one of source and from")
        if self.path is not None and self.from_task is None:
            raise ValueError("path needs from; put it into source instead")


LossOn = Literal["auto", "assistant", "completion", "all"]
Exhausted = Literal["repeat", "leave", "stop"]
ControlTokens = Literal["text", "refuse", "template"]


class MixPart(Source):
    """One data set of a mixture. Unset fields take the mixture's values."""

    name: Name | None = Field(default=None, description="how reports call the part; default: by its source")
    weight: float | None = Field(
        default=None, gt=0, le=1e9, description="its share of the rows, relative to the other parts; default: its number of rows"
    )
    repeats: int | None = Field(
        default=None, ge=1, description="passes over its rows, at most; default: no limit with whenExhausted: repeat, else one"
    )
    format: Format | None = Field(default=None, description="as data.format; default: the mixture's")
    loss_on: LossOn | None = Field(default=None, description="as data.lossOn; default: the mixture's")
    chat: bool | None = Field(default=None, description="as data.chat; default: the mixture's")
    chat_template: str | None = Field(default=None, description="as data.chatTemplate; default: the mixture's")


DataWorkerCount = Annotated[int, Field(ge=0, le=256)]


class DataService(Fields):
    """Data workers on other machines than the ranks. They read, tokenise and pack, and send rows to the ranks."""

    min_workers: int = Field(default=1, ge=1, le=256, description="data workers that are always there")
    max_workers: int = Field(default=4, ge=1, le=256, description="data workers at most; there are more while the ranks wait for rows")
    cpus: float = Field(default=1.0, gt=0, le=64, description="cores of each")
    memory_gb: float = Field(default=2.0, gt=0, le=1024, description="memory of each, in GB")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min_workers > self.max_workers:
            raise ValueError("minWorkers is above maxWorkers")
        return self


class Images(Fields):
    """Images of a program's rows, PNG or JPEG. Data workers decode and resize them."""

    column: str = Field(default="image", min_length=1, max_length=255, description="column with the bytes of an image")
    short_side: int = Field(ge=1, le=4096, description="pixels of the short side of each image; its proportions stay")


class TrainData(Source):
    """Samples to train on."""

    mix: list[MixPart] = Field(
        default_factory=list, max_length=64, description="several data sets, mixed by weight; in place of source and from; default: none"
    )
    temperature: float = Field(
        default=1.0,
        ge=0.1,
        le=100.0,
        description="of a mixture: weights are taken to the power of 1 / temperature; above 1, small parts are seen more often",
    )
    when_exhausted: Exhausted = Field(
        default="repeat",
        description="after `repeats` passes over a part of a mixture: repeat it (if it has no `repeats`), continue without it, or stop "
        "the epoch",
    )
    format: Format = Field(default="auto", description="kind of sample; auto: detected from the columns, and shown")
    pack: bool = Field(default=False, description="join samples into rows of maxLength tokens, without attention across samples")
    max_length: int = Field(default=2048, ge=8, description="tokens per row; longer samples are cut, or dropped: see overlong")
    overlong: Literal["truncate", "drop", "error"] = Field(default="truncate", description="treatment of a sample longer than maxLength")
    validation_fraction: float = Field(default=0.0, ge=0.0, lt=1.0, description="share of samples held out for evaluation")
    validation: Source | None = Field(default=None, description="a separate data set for evaluation, instead of a share; default: none")
    loss_on: LossOn = Field(
        default="auto", description="tokens that count: assistant turns (chat), the completion, or all; auto: by format"
    )
    chat: bool = Field(
        default=False, description="render pairs of plain texts by the chat template, as a user's question and the assistant's answer"
    )
    chat_template: str | None = Field(default=None, description="Jinja template, or a path to one; default: the tokenizer's own")
    control_tokens: ControlTokens = Field(
        default="text",
        description="texts of users and tools in a chat that spell a control token, such as <|im_end|>: text reads them as plain text; "
        "refuse makes every row bad that spells one anywhere; template turns them into the token",
    )
    images: Images | None = Field(
        default=None,
        description="images of a program's rows, which are streamed then: decode and resize them; default: columns stay as they are",
    )
    show_sample: bool = Field(default=True, description="print one sample as the model sees it when the task starts")
    streaming: bool | None = Field(
        default=None,
        description="read, tokenise and pack while the task trains, shard by shard, instead of before; default: with "
        "`steps`, what takes longer than about ten seconds to prepare; with `epochs`, above 1 GiB; rows of a program: false",
    )
    workers: DataWorkerCount | Literal["auto"] = Field(
        default="auto",
        description="of streamed data: processes of each machine that prepare rows ahead; 0: the ranks do it themselves; auto: one for "
        "each core that the ranks leave, 1 to 8",
    )
    service: DataService | None = Field(
        default=None, description="prepare rows of streamed data on other machines than those of the ranks; default: beside the ranks"
    )
    shared: bool = Field(
        default=True,
        description="of streamed data: where the machine or the Cluster names a place for shards that jobs of a team share, use it; false: "
        "none of these rows is kept there",
    )
    shuffle: bool = Field(default=True, description="a new order of samples in each epoch, by the seed")
    max_bad_fraction: float = Field(
        default=0.01, ge=0.0, le=1.0, description="share of bad samples, 0 to 1, above which the task is refused"
    )

    @property
    def asks_for_stream(self) -> bool:
        """Whether the fields ask for streamed rows. Rows of texts may be streamed without."""
        return bool(self.streaming) or self.service is not None or self.images is not None

    def check_place(self) -> None:
        """Raises ValueError unless the place is exactly one source, one task, or a mixture with distinct names."""
        if not self.mix:
            return super().check_place()
        if self.source is not None or self.from_task is not None:
            raise ValueError("give one of source, from and mix")
        for field in ("path", "split", "file_type", "columns", "roles", "template", "sheet", "limit"):
            if field in self.model_fields_set and getattr(self, field) != type(self).model_fields[field].get_default(
                call_default_factory=True
            ):
                raise ValueError(f"{to_camel(field)} belongs to the parts of a mixture: put it there")
        names = [part.name for part in self.mix if part.name is not None]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two parts of the mixture are named {twice[0]}")
        if any(part.weight is None for part in self.mix) and any(part.weight is not None for part in self.mix):
            raise ValueError("give every part of the mixture a weight, or none of them")
        return None

    def sources(self) -> dict[str, Source]:
        """Each data set by the path of its field inside these data: `` (the data themselves), `mix.0`, `validation`."""
        own: dict[str, Source] = {f"mix.{index}": part for index, part in enumerate(self.mix)} if self.mix else {"": self}
        return own | ({"validation": self.validation} if self.validation is not None else {})

    def with_sources(self, change: Callable[[Source], Source]) -> Self:
        """A copy with `change(source)` in place of each data set."""
        parts = [change(part) for part in self.mix]
        own = self.model_copy(update={"mix": parts}) if self.mix else change(self)
        assert isinstance(own, type(self))
        return own.model_copy(update={"validation": change(self.validation)}) if self.validation is not None else own

    @model_validator(mode="after")
    def _one_validation(self) -> Self:
        if self.streaming and self.limit is not None:
            raise ValueError("limit needs all rows before it: leave streaming out")
        if self.service is not None and self.streaming is False:
            raise ValueError("service prepares streamed data: leave streaming: false out")
        if self.service is not None and self.workers != "auto":
            raise ValueError("give workers (beside the ranks) or service (away from them), not both")
        if self.validation is not None and self.validation_fraction > 0:
            raise ValueError("give validation or validationFraction, not both")
        return self


_INSIDE = {name: f", or put it into lmEval: {{{name}: …}}" for name in ("chat", "limit")}
"""Fields that lmEval has too."""


class ScoreData(Source):
    """Rows to score."""

    lm_eval: LmEval | None = Field(
        default=None,
        description="tasks of lm-evaluation-harness instead of rows, with its figures; exactly one of source, from and lmEval",
    )
    prompt: str = Field(default="prompt", description="column with the prompt: text, or a list of chat messages")
    reference: str | None = Field(
        default=None, description="column with the expected answer, or a list of them, for metrics; default: none"
    )
    keep: list[str] = Field(
        default_factory=list, description="columns copied into the output; default: all of them, or none if a ranker scores a table"
    )
    answer: str | None = Field(
        default=None, min_length=1, description="column with the answers that a judge scores; default: output, as score tasks write it"
    )
    sample: float | None = Field(
        default=None,
        gt=0,
        description="score a random sample of the rows (of the first `limit`): below 1 a share of them, else a number of rows; "
        "default: all",
    )
    sample_seed: int = Field(default=0, ge=0, le=2**32 - 1, description="of `sample`: another seed draws other rows")
    chat: bool | None = Field(
        default=None,
        description="render prompts with the chat template; default: as in the model's training by "
        "Tuneyard; of other models: if they have a template",
    )
    control_tokens: ControlTokens = Field(
        default="text",
        description="texts of users and tools in a chat that spell a control token: text reads them as plain text; refuse makes the row "
        "an error; template turns them into the token. An endpoint decides by itself",
    )

    def check_place(self) -> None:
        """Raises ValueError unless the place is exactly one of a source, a task, and tasks of lm-evaluation-harness, which have no other
        fields of data beside them."""
        if self.lm_eval is None:
            if self.source is None and self.from_task is None:
                raise ValueError("give exactly one of source, from and lmEval")
            return super().check_place()
        for field in other_fields(self):
            if field in ("source", "from"):
                raise ValueError("give exactly one of source, from and lmEval")
            raise located(
                f"tasks of lm-evaluation-harness bring their own rows and prompts: leave {field} out{_INSIDE.get(field, '')}", field
            )
        return None

    @model_validator(mode="after")
    def _whole_sample(self) -> Self:
        if self.sample is not None and self.sample >= 1 and self.sample % 1:
            raise ValueError(f"sample is {self.sample:g}: give a share below 1, or a whole number of rows")
        return self

"""Where the samples of a task come from, and which columns mean what."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from tuneyard.api.base import Fields, Name

Format = Literal["auto", "chat", "prompt-completion", "preference", "text"]
FileType = Literal["auto", "parquet", "jsonl", "csv", "text", "hf"]


class Source(Fields):
    """A data set: a URI, or a path inside what an earlier task of the job made."""

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
    file_type: FileType = Field(default="auto", description="by file ending unless given")
    columns: dict[str, str] = Field(
        default_factory=dict,
        description="role -> column, where detection would guess wrong: messages, system, tools, prompt, input, completion, chosen, "
        "rejected, text",
    )
    limit: int | None = Field(default=None, ge=1, description="use the first N samples only; default: all")

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.source is None) == (self.from_task is None):
            raise ValueError("give exactly one of source and from")
        if self.path is not None and self.from_task is None:
            raise ValueError("path goes with from; put it into source instead")
        return self


class TrainData(Source):
    """Samples to train on."""

    format: Format = Field(default="auto", description="what a sample is; auto: detected from the columns, and shown")
    pack: bool = Field(default=False, description="join samples into rows of maxLength tokens, without attention across samples")
    max_length: int = Field(default=2048, ge=8, description="tokens per row; longer samples are cut, or dropped: see overlong")
    overlong: Literal["truncate", "drop", "error"] = Field(default="truncate", description="what happens to a sample longer than maxLength")
    validation_fraction: float = Field(default=0.0, ge=0.0, lt=1.0, description="share of samples held out for evaluation")
    validation: Source | None = Field(default=None, description="a data set of its own for evaluation, instead of a share; default: none")
    loss_on: Literal["auto", "assistant", "completion", "all"] = Field(
        default="auto", description="tokens that count: assistant turns (chat), the completion, or all; auto: by format"
    )
    chat: bool = Field(
        default=False, description="render pairs of plain texts by the chat template, as a user's question and the assistant's answer"
    )
    chat_template: str | None = Field(default=None, description="Jinja template, or a path to one; default: the tokenizer's own")
    show_sample: bool = Field(default=True, description="print one sample as the model sees it when the task starts")
    shuffle: bool = Field(default=True, description="a new order of samples in each epoch, by the seed")
    max_bad_fraction: float = Field(
        default=0.01, ge=0.0, le=1.0, description="share of bad samples, 0 to 1, above which the task is refused"
    )

    @model_validator(mode="after")
    def _one_validation(self) -> Self:
        if self.validation is not None and self.validation_fraction > 0:
            raise ValueError("give validation or validationFraction, not both")
        return self


class ScoreData(Source):
    """Rows to score."""

    prompt: str = Field(default="prompt", description="column with the prompt: text, or a list of chat messages")
    reference: str | None = Field(
        default=None, description="column with the expected answer, or a list of them, for metrics; default: none"
    )
    keep: list[str] = Field(default_factory=list, description="columns copied into the output; default: all of them")
    chat: bool | None = Field(
        default=None,
        description="render prompts with the chat template; default: as in the model's training by "
        "Tuneyard; of other models: if they have a template",
    )

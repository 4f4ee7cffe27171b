"""Tiny models, tokenizers and data sets for tests: built here from configs and text, loaded by the real code."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from tuneyard.api import BadInput, Task, TrainTask, check_task
from tuneyard.catalog import Gpu, gpu
from tuneyard.catalog.built import model_shape_of
from tuneyard.catalog.cpu import machine_memory_gb
from tuneyard.planning import Plan, plan_of_program
from tuneyard.planning.site import search_of
from tuneyard.training import TrainRequest

CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
TEXT = "the cat sat on a mat and saw one dog run over two hills while red birds sang old songs near cold blue lakes"


def sentences(count: int) -> list[str]:
    """Texts of 5 to 24 words, the same in every run."""
    words = TEXT.split()
    return [" ".join(words[(i * 7 + j * (i % 5 + 1)) % len(words)] for j in range(5 + i * 3 % 20)) for i in range(count)]


def write_weights(folder: Path) -> Path:
    """One weight, for checks that look whether a model has any."""
    import numpy as np
    from safetensors.numpy import save_file

    save_file({"lm_head.weight": np.zeros((1, 1), np.float32)}, folder / "model.safetensors")
    return folder


def write_tokenizer(folder: Path, *, chat_template: str | None = CHAT_TEMPLATE) -> Any:
    """A byte-level BPE tokenizer with a few hundred tokens, trained on `sentences`; written to `folder` and returned."""
    fast = tokenizer_of(["<|user|>", "<|assistant|>", "<|system|>"], eos="<|end|>", chat_template=chat_template)
    fast.save_pretrained(folder)
    return fast


def tokenizer_of(special: list[str], *, eos: str, chat_template: str | None, size: int = 384, texts: tuple[str, ...] = ()) -> Any:
    """As of `write_tokenizer`, with these tokens after the end token (0) and the padding token (1). `texts` are learned from too."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=[eos, "<|pad|>", *special], initial_alphabet=alphabet)
    tokenizer.train_from_iterator([*sentences(200), *texts], trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=eos, pad_token="<|pad|>")
    fast.chat_template = chat_template
    return fast


def tiny_config(kind: str = "llama", **changes: Any) -> Any:
    """A config of 2 layers and hidden width 64: llama (grouped-query heads), gpt2 or qwen2; mixtral and qwen3_moe with four experts."""
    from transformers import GPT2Config, LlamaConfig, MixtralConfig, Qwen2Config, Qwen3MoeConfig

    common = {"vocab_size": 384, "eos_token_id": 0, "bos_token_id": None, "pad_token_id": 1, "max_position_embeddings": 256}
    if kind == "gpt2":
        gpt2 = {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 256, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        return GPT2Config(**{**common, **gpt2, **changes})
    shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    if kind in ("mixtral", "qwen3_moe"):
        experts = {"num_experts_per_tok": 2, "router_aux_loss_coef": 0.5}
        if kind == "mixtral":
            return MixtralConfig(**{**common, **shape, **experts, "num_local_experts": 4, **changes})
        return Qwen3MoeConfig(**{**common, **shape, **experts, "num_experts": 4, "moe_intermediate_size": 64, "head_dim": 16, **changes})
    return {"llama": LlamaConfig, "qwen2": Qwen2Config}[kind](**{**common, **shape, **changes})


def write_model(folder: Path, kind: str = "llama", **changes: Any) -> Path:
    """A model with random weights and its tokenizer, as `from_pretrained` reads it."""
    from transformers import AutoModelForCausalLM, set_seed

    set_seed(7)
    AutoModelForCausalLM.from_config(tiny_config(kind, **changes)).save_pretrained(folder)
    write_tokenizer(folder)
    return folder


def write_adapter(folder: Path, model: Path, *, std: float = 1.0, seed: int = 3, **config: Any) -> Path:
    """A LoRA adapter of the model, with random weights so large that they turn answers round, and the model's tokenizer beside it."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(seed)
    settings = LoraConfig(**{"r": 4, "target_modules": "all-linear", "task_type": "CAUSAL_LM", **config})
    adapted = get_peft_model(AutoModelForCausalLM.from_pretrained(model), settings)
    for name, weights in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weights, std=std)  # PEFT starts B at zero: such an adapter would change nothing
    adapted.save_pretrained(folder)
    AutoTokenizer.from_pretrained(model).save_pretrained(folder)
    return folder


def write_text(path: Path, count: int = 64) -> Path:
    """JSONL with a column text."""
    return _write_jsonl(path, [{"text": text} for text in sentences(count)])


def write_chats(path: Path, count: int = 64) -> Path:
    """JSONL with a column messages: one question and one answer each."""
    texts = sentences(2 * count)
    turns = zip(texts[::2], texts[1::2], strict=True)
    return _write_jsonl(path, [{"messages": [{"role": "user", "content": q}, {"role": "assistant", "content": a}]} for q, a in turns])


def write_preferences(path: Path, count: int = 32) -> Path:
    """JSONL with prompt, chosen and rejected."""
    texts = sentences(3 * count)
    rows = [{"prompt": texts[i] + " ", "chosen": texts[i + 1], "rejected": texts[i + 2]} for i in range(0, 3 * count, 3)]
    return _write_jsonl(path, rows)


def _write_jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def cpu_plan(**changes: Any) -> Plan:
    """A plan for one process on cpu in fp32; the global batch is 8 rows unless changed. `train_request` asks the planner for it.

    Two micro-batches for each of up to two workers: of a pass over a tiny model, nearly all is Python's, however many rows it has.
    """
    workers = changes.get("workers", 1)
    micro = 4 if workers == 1 else 2
    defaults = {
        "sku": "cpu",
        "workers": 1,
        "zero": 0,
        "precision": "fp32",
        "attention": "sdpa",
        "micro_batch": micro,
        "grad_accum": 8 // micro // workers,
    }
    return Plan(**{**defaults, **changes})


def train_task(model_folder: Path, source: Path, **changes: Any) -> TrainTask:
    """A clm task of 6 steps over `source`; `changes` are fields of the JobSpec's train task, in snake_case or camelCase."""
    fields: dict[str, Any] = {
        "model": {"name": str(model_folder)},
        "data": {"source": str(source), "maxLength": 64},
        "objective": "clm",
        "optimizer": {"learningRate": 1e-3},
        "batch": {"global": 8},
        "steps": 6,
        "checkpoint": {"everySteps": 100},
    }
    return TrainTask.model_validate({**fields, **changes})


def train_request(folder: Path, task: TrainTask, plan: Plan | None = None, *, refused: bool | None = False, **changes: Any) -> TrainRequest:
    """A request whose output and scratch lie in `folder`.

    Fails with what a user would be told where the rules or the planner refuse the task in the layout of `plan`. `refused`: they have to;
    None: they are not asked.
    """
    fields: dict[str, Any] = {
        "job": "test",
        "name": "train",
        "task": task,
        "plan": plan or cpu_plan(),
        "model_uri": task.model.name,
        "output": str(folder / "out"),
        "scratch": str(folder / "scratch"),
    }
    request = TrainRequest(**{**fields, **changes})
    if refused is not None:
        why = why_refused(request)
        assert bool(why) is refused, why or "the planner has this plan"
    return request


def why_refused(request: TrainRequest) -> str:
    """Why no JobSpec leads to this request: what the rules or the planner say to its task with the layout of its plan. Empty: one does.

    The planner is not asked about a model without a `config.json` here: another store has it, or the test is about that.
    """
    plan, kind = request.plan, _kind(request.plan.sku)
    task = as_a_user_writes(request.task, plan)
    config = Path(request.model_uri) / "config.json"
    known = request.task.program is None and config.is_file()
    try:
        shape = model_shape_of(json.loads(config.read_text())) if known else None
        job = Task.model_validate({"name": "train", "train": task, "resources": {"sku": [plan.sku], "workers": plan.workers}})
        broken = check_task(job, device=kind.device, model_type=shape.model_type if shape is not None else None)
        if broken:
            return broken[0].reason
        if request.task.program is not None:
            plan_of_program(task, kind, plan.workers)
        if shape is not None and not search_of(task, shape, kind, plan.workers).fits_at_all():
            return f"it does not fit on {plan.workers} x {plan.sku}"
    except BadInput as error:
        return str(error)
    rows = task.batch.global_
    return "" if rows == plan.global_batch else f"a step of the plan has {plan.global_batch} rows, and one of the task {rows}"


def as_a_user_writes(task: TrainTask, plan: Plan) -> TrainTask:
    """The task with each setting that `plan` has decided."""
    values = task.model_dump(by_alias=True, exclude_unset=True)
    if task.program is None:
        values["model"] = {**values["model"], "attention": plan.attention}
    values["batch"] = {**values.get("batch", {}), "micro": plan.micro_batch}
    values["strategy"] = {
        "zero": plan.zero,
        "offload": {"optimizer": plan.offload_optimizer, "parameters": plan.offload_parameters, "nvmePath": plan.nvme_path},
        "tensorParallel": plan.tensor_parallel,
        "sequenceParallel": plan.sequence_parallel,
        "contextParallel": plan.context_parallel,
        "shardWithin": plan.shard_within,
        "quantisedAllReduce": plan.quantised_all_reduce,
        "recompute": plan.recompute,
        "precision": plan.precision,
        "liger": plan.liger,
        "compile": "layers" if plan.compiled else "none",
    }
    return TrainTask.model_validate(values)


def _kind(sku: str) -> Gpu:
    """The device; `cpu` without a measurement of its speed, which no layout needs."""
    return replace(gpu("h100-80gb"), sku="cpu", vendor="cpu", memory_gb=machine_memory_gb()) if sku == "cpu" else gpu(sku)

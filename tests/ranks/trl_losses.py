"""One task and the same one in TRL's trainers, on the same rows: the losses of each step."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import torch
from peft import LoraConfig, get_peft_model
from tests.builders.models import cpu_plan, sentences, train_request, train_task, write_tokenizer
from tests.ranks.groups import results_in_ranks
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PrinterCallback, set_seed
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

from tuneyard.catalog import attention_kinds
from tuneyard.training import TrainResult, train

STEPS, RATE, LENGTH, RANK = 4, 1e-3, 64, 4
WIDE = {"hidden_size": 320, "tie_word_embeddings": False}
"""Head and embedding have more elements than DeepSpeed keeps whole under ZeRO 3 (100,000)."""
SHAPE = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 256}
TOKENS = {"vocab_size": 384, "eos_token_id": 0, "pad_token_id": 1, "bos_token_id": None}
GROUPED = {**SHAPE, "num_key_value_heads": 2}
CHOSEN = {"num_experts_per_tok": 2, "router_aux_loss_coef": 0.5}
STILL = {"attention_dropout": 0.0, "hidden_dropout": 0.0, "dropout": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
DENSE: dict[str, dict[str, Any]] = {
    "llama": GROUPED,
    "qwen2": GROUPED,
    "qwen3": {**GROUPED, "head_dim": 16},
    "mistral": GROUPED,
    "gemma2": {**GROUPED, "head_dim": 16},
    "gemma3_text": {**GROUPED, "head_dim": 16},
    "phi3": {**GROUPED, **STILL},
    "granite": GROUPED,
    "olmo2": GROUPED,
    "smollm3": GROUPED,
    "cohere": GROUPED,
    "glm4": {**GROUPED, "head_dim": 16},
    "gpt2": {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 256, **STILL},
    "gpt_neox": {**SHAPE, **STILL},
    "opt": {**SHAPE, "ffn_dim": 128, "word_embed_proj_dim": 64, **STILL},
}
EXPERTS: dict[str, dict[str, Any]] = {
    "mixtral": {**GROUPED, **CHOSEN, "num_local_experts": 4},
    "qwen2_moe": {**GROUPED, **CHOSEN, "num_experts": 4, "moe_intermediate_size": 64, "shared_expert_intermediate_size": 64},
    "qwen3_moe": {**GROUPED, **CHOSEN, "num_experts": 4, "moe_intermediate_size": 64, "head_dim": 16},
    "olmoe": {**GROUPED, **CHOSEN, "num_experts": 4},
    "gpt_oss": {**GROUPED, **CHOSEN, "num_local_experts": 4, "head_dim": 16},
}


@dataclass(frozen=True)
class Compared:
    """Losses by step, TRL's router loss included in both."""

    ours: list[float]
    theirs: list[float]

    @property
    def ends(self) -> tuple[float, ...]:
        """Of the first step, then of the last one: ours, theirs."""
        return self.ours[0], self.theirs[0], self.ours[-1], self.theirs[-1]

    @property
    def error(self) -> float:
        """The largest relative difference of a step."""
        return max(abs(one / other - 1) for one, other in zip(self.ours, self.theirs, strict=True))


def write_model(folder: Path, kind: str, **changes: Any) -> Path:
    """A random model with the tests' tokenizer."""
    set_seed(7)
    shape = {**DENSE, **EXPERTS}[kind] | changes
    AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **TOKENS, **shape)).save_pretrained(folder)
    write_tokenizer(folder)
    return folder


def compare(
    folder: Path,
    kind: str,
    *,
    objective: str,
    adapted: bool = False,
    loss: str = "sigmoid",
    layout: dict[str, Any] | None = None,
    **shape: Any,
) -> Compared:
    """`objective` clm: whole texts; sft: completions of prompts; dpo: preference pairs, under `loss`. `adapted`: LoRA instead of full.
    `layout`: of our plan; TRL trains in one process, without DeepSpeed. `shape`: changes of the model.
    """
    model = write_model(folder / "model", kind, **shape)
    rows = _preferences() if objective == "dpo" else _texts() if objective == "clm" else _completions()
    source = folder / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = train_task(
        model,
        source,
        objective=objective,
        data={"source": str(source), "maxLength": LENGTH, "shuffle": False},
        optimizer={"learningRate": RATE, "schedule": "constant", "warmup": 0},
        steps=STEPS,
        method={"lora": {"rank": RANK}} if adapted else {"full": {}},
        **({"preference": {"loss": loss}} if objective == "dpo" else {}),
    )
    attention = next(each for each in attention_kinds(kind) if each != "flash")
    plan = cpu_plan(**{"micro_batch": 2, "grad_accum": 4, "attention": attention, **(layout or {})})
    request = train_request(folder / "ours", task, plan)
    ours = train(request) if plan.workers == 1 else results_in_ranks([request], plan.workers)[0]
    start = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    if adapted:
        set_seed(task.seed)
        start = get_peft_model(start, LoraConfig(task_type="CAUSAL_LM", r=RANK, lora_alpha=2 * RANK, target_modules="all-linear"))
    given = {"loss_type": loss} if objective == "dpo" else {}
    return Compared(_whole(ours), _trl(folder / "theirs", start, AutoTokenizer.from_pretrained(model), rows, objective, **given))


def _whole(result: TrainResult) -> list[float]:
    """With the router's loss, which TRL counts in the loss that it logs."""
    router = result.details.get("router")
    if router is None:
        return result.losses
    return [loss + router["weight"] * part for loss, part in zip(result.losses, router["losses"], strict=True)]


def _trl(folder: Path, start: Any, tokenizer: Any, rows: list[dict[str, Any]], objective: str, **given: Any) -> list[float]:
    kind, trainer = (DPOConfig, DPOTrainer) if objective == "dpo" else (SFTConfig, SFTTrainer)
    arguments = kind(
        str(folder),
        per_device_train_batch_size=2,
        gradient_accumulation_steps=4,
        max_steps=STEPS,
        learning_rate=RATE,
        lr_scheduler_type="constant",
        weight_decay=0.0,
        max_length=LENGTH,
        logging_steps=1,
        train_sampling_strategy="sequential",
        bf16=False,
        use_cpu=True,
        gradient_checkpointing=False,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        **given,
    )
    if objective != "dpo":
        rows = [{name: text + (tokenizer.eos_token if name == "text" else "") for name, text in row.items()} for row in rows]
    theirs = trainer(start, args=arguments, train_dataset=datasets.Dataset.from_list(rows), processing_class=tokenizer)
    theirs.remove_callback(PrinterCallback)
    theirs.train()
    return [entry["loss"] for entry in theirs.state.log_history if "loss" in entry]


def _texts() -> list[dict[str, Any]]:
    return [{"text": text} for text in sentences(8 * STEPS)]


def _completions() -> list[dict[str, Any]]:
    texts = sentences(16 * STEPS)
    return [{"prompt": question, "completion": " " + answer} for question, answer in zip(texts[::2], texts[1::2], strict=True)]


def _preferences() -> list[dict[str, Any]]:
    """Answers begin with a blank: TRL leaves out the end of a prompt that merges with its answer into one token."""
    texts = sentences(24 * STEPS)
    return [
        {"prompt": prompt, "chosen": f" {chosen}", "rejected": f" {rejected}"}
        for prompt, chosen, rejected in zip(texts[::3], texts[1::3], texts[2::3], strict=True)
    ]


def token_counts() -> list[int]:
    """Tokens of each text of `clm`, with the end token."""
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = write_tokenizer(Path(folder))
    return [len(tokenizer(row["text"])["input_ids"]) + 1 for row in _texts()]

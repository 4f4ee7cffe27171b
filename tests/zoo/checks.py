"""One architecture through everything that a user does with it: what works, what is refused in which words, what fails."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tests.builders.models import cpu_plan, train_request, train_task
from tests.zoo.configs import tiny_config_of
from tests.zoo.findings import SAME, STEPS, Findings, Outcome
from tests.zoo.rows import ANSWERS, MARK, question, tokenizer, write_rows

from tuneyard.api import BadInput
from tuneyard.catalog import attention_kinds
from tuneyard.catalog.built import model_shape_of
from tuneyard.catalog.config_reader import config_in

_QUICK = {"optimizer": {"learningRate": 5e-3, "warmup": 5}}


def findings_of(model_type: str, folder: Path) -> Findings:
    """Everything about one model type; `folder` is for its files."""
    found = Findings(model_type=model_type)
    built = _timed(found, folder, "build", lambda: _build(found, folder / "start"))
    if built.status != "works":
        found.full = Outcome(status="not built", words=built.words)
        return found
    rows = write_rows(folder / "rows.jsonl")
    found.full = _timed(found, folder, "full", lambda: _full(found, folder, rows))
    found.packed = _timed(found, folder, "packed", lambda: _packed(found, folder, rows))
    found.lora = _timed(found, folder, "lora", lambda: _lora(found, folder, rows))
    return found


def _timed(found: Findings, folder: Path, name: str, check: Callable[[], str]) -> Outcome:
    began = time.perf_counter()
    try:
        words = check()
        return Outcome(status="fails" if words else "works", words=words)
    except BadInput as error:
        return Outcome(status="refused", words=str(error).replace(str(folder), "the folder"))
    except Exception as error:  # noqa: BLE001 - the table has to say what fails, and go on
        traceback.print_exc()
        return Outcome(status="fails", words=f"{type(error).__name__}: {error}"[:600])
    finally:
        found.seconds[name] = round(time.perf_counter() - began, 1)


def trained_for_engine(model_type: str, folder: Path) -> str:
    """A saved model with two heads of 64 that has learned the answers."""
    found = Findings(model_type=model_type)
    _build(found, folder / "start", wide=True)
    result = _train(found, folder / "full", write_rows(folder / "rows.jsonl"), steps=STEPS, global_=24, **_QUICK)
    return str(result.model_uri)


def _build(found: Findings, folder: Path, *, wide: bool = False) -> str:
    from transformers import AutoModelForCausalLM, set_seed

    config = tiny_config_of(found.model_type, wide=wide)
    set_seed(7)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 2 and not weight.any():
                weight.normal_(std=0.02)  # a router of zeros has only ties, which the smallest change decides
    model.save_pretrained(folder)
    if tiny_config_of(found.model_type).is_encoder_decoder:  # as in published folders; transformers takes the decoder out
        config.is_encoder_decoder = True
        config.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    found.model_class = type(model).__name__
    found.parameters = sum(p.numel() for p in model.parameters())
    found.attention = next(kind for kind in attention_kinds(config.model_type) if kind != "flash")
    try:
        shape = model_shape_of(config_in(folder))
        found.sized = "its own family" if shape.exact else "read off"
    except BadInput as error:
        found.sized = f"refused: {error}"
    return ""


def _full(found: Findings, folder: Path, rows: Path) -> str:
    result = _train(found, folder / "full", rows, steps=STEPS, global_=24, **_QUICK)
    first = _loss(folder / "start", rows)
    found.first_loss = abs(result.losses[0] - first)
    trained = _loss(result.model_uri, rows)
    found.reload = abs(result.eval_losses[-1][1] - trained)
    _answers(found, result.model_uri)
    wrong = [
        (found.first_loss > SAME, f"the first loss is {result.losses[0]:.5f}; transformers has {first:.5f} for these rows one by one"),
        (found.reload > SAME, f"the held-out loss is {result.eval_losses[-1][1]:.6f}; the saved model has {trained:.6f}"),
        (result.losses[-1] > 0.5 * result.losses[0], f"the loss stays at {result.losses[-1]:.2f} of {result.losses[0]:.2f}"),
        (_class_in(result.model_uri) != found.model_class, f"saved as {_class_in(result.model_uri)}"),
    ]
    return "; ".join(words for is_wrong, words in wrong if is_wrong)


def _packed(found: Findings, folder: Path, rows: Path) -> str:
    """With the learning rate near 0 the held-out loss is that of the start: the trained model, because random weights hide what leaks."""
    start = folder / "full" / "out" / "model"
    start = start if start.exists() else folder / "start"
    result = _train(found, folder / "packed", rows, start=start, steps=2, pack=True, global_=2, optimizer={"learningRate": 1e-9})
    alone = _loss(start, rows)
    difference = abs(result.eval_losses[-1][1] - alone)
    return f"the loss of packed rows is {result.eval_losses[-1][1]:.5f}, of the same rows alone {alone:.5f}" if difference > SAME else ""


def _lora(found: Findings, folder: Path, rows: Path) -> str:
    lora = {"lora": {"rank": 8, "merge": True}}
    result = _train(found, folder / "lora", rows, steps=6, method=lora, global_=24, optimizer={"learningRate": 1e-2})
    ours = result.eval_losses[-1][1]
    adapted, merged = _loss(folder / "start", rows, adapter=result.adapter_uri), _loss(result.merged_uri, rows)
    wrong = [
        (result.losses[-1] >= result.losses[0], f"the loss goes from {result.losses[0]:.4f} to {result.losses[-1]:.4f}"),
        (abs(ours - adapted) > SAME, f"the held-out loss is {ours:.6f}; the saved adapter has {adapted:.6f}"),
        (abs(ours - merged) > 10 * SAME, f"the held-out loss is {ours:.6f}; the merged weights have {merged:.6f}"),
    ]
    return "; ".join(words for is_wrong, words in wrong if is_wrong)


def _train(
    found: Findings, folder: Path, rows: Path, *, steps: int, global_: int, pack: bool = False, start: Path | None = None, **changes: Any
) -> Any:
    from tuneyard.training import train

    # Held-out rows are the training rows: their loss is compared with the loss of what was saved.
    data = {"source": str(rows), "validation": {"source": str(rows)}, "maxLength": 128, "pack": pack}
    task = train_task(start or folder.parent / "start", rows, objective="sft", data=data, steps=steps, batch={"global": global_}, **changes)
    plan = cpu_plan(attention=found.attention, micro_batch=global_ // 2, grad_accum=2)
    return train(train_request(folder, task, plan, refused=None))  # what training itself refuses; the planner's answers have a test


def _loss(model: Any, rows: Path, adapter: str | None = None) -> float:
    """Mean over all tokens that count, of the saved weights, by plain transformers: one row at a time, the loss computed here."""
    from transformers import AutoModelForCausalLM

    from tuneyard import data
    from tuneyard.api.data import TrainData

    loaded = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    if adapter is not None:
        from peft import PeftModel

        loaded = PeftModel.from_pretrained(loaded, adapter)
    loaded.eval()
    prepared = data.prepare(TrainData.model_validate({"source": str(rows), "maxLength": 128}), tokenizer(), objective="sft", seed=0)
    total, count = 0.0, 0
    for row in prepared.train:
        labels = torch.tensor(row["labels"][1:])
        with torch.no_grad():
            logits = loaded(input_ids=torch.tensor([row["input_ids"]]), use_cache=False).logits[0, :-1].double()
        total += float(torch.nn.functional.cross_entropy(logits, labels, reduction="sum", ignore_index=-100))
        count += int((labels != -100).sum())
    return total / count


def _answers(found: Findings, model: str) -> None:
    """Counts of exact answers, and of answers that end by themselves."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from tuneyard.scoring.generation import Generator

    loaded, saved = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval(), AutoTokenizer.from_pretrained(model)
    mark = saved.convert_tokens_to_ids(MARK)
    generator = Generator(model, None, chat=True)
    found.stops = found.exact = found.generator = 0
    for asked, answer in ANSWERS.items():
        prompt = question(saved, asked)
        made = loaded.generate(input_ids=prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=12, do_sample=False)
        tokens = made[0, prompt.shape[1] :].tolist()
        found.stops += tokens[-1] == mark and mark not in tokens[:-1]
        found.exact += saved.decode(tokens, skip_special_tokens=True).strip() == answer
        found.generator += generator.answer(asked, len, max_tokens=12) == answer


def _class_in(folder: str) -> str:
    from transformers import AutoConfig

    return str((AutoConfig.from_pretrained(folder).architectures or ["?"])[0])

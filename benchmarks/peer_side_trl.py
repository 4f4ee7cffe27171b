"""TRL's side of the comparison of tokens: `python peer_side_trl.py CASES.json ANSWERS.json`, in TRL's own environment."""

import json
import sys
from pathlib import Path

import datasets
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

COMMON = {"output_dir": "unused", "use_cpu": True, "bf16": False, "report_to": [], "max_length": 4096, "disable_tqdm": True}


def main() -> None:
    cases = json.loads(Path(sys.argv[1]).read_text())
    datasets.disable_progress_bars()
    answers = {}
    for tokenizer in cases["tokenizers"]:
        answers[tokenizer["name"]] = {
            case["format"]: _answer(tokenizer["folder"], case) for case in cases["cases"] if case["kind"] in tokenizer["kinds"]
        }
    Path(sys.argv[2]).write_text(json.dumps(answers))


def _answer(folder: str, case: dict) -> dict:
    if case["format"].startswith("Alpaca"):
        return {"none": "TRL has no such format"}
    try:
        return (_pairs if case["kind"] == "pairs" else _tokens)(folder, case)
    except Exception as error:  # noqa: BLE001 - a refusal is an answer
        return {"error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}


def _model(tokenizer):
    shape = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    return LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **shape))


def _tokens(folder: str, case: dict) -> dict:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    # Completions of messages carry loss as completions do, whole chats on what the assistant says.
    arguments = SFTConfig(**COMMON, assistant_only_loss=case["kind"] == "chats" and "prompt" not in case["rows"][0])
    trainer = SFTTrainer(
        _model(tokenizer), args=arguments, train_dataset=datasets.Dataset.from_list(case["rows"]), processing_class=tokenizer
    )
    batch = trainer.data_collator([trainer.train_dataset[0]])
    return {"ids": batch["input_ids"][0].tolist(), "loss": [int(label >= 0) for label in batch["labels"][0].tolist()]}


def _pairs(folder: str, case: dict) -> dict:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    rows = datasets.Dataset.from_list(case["rows"])
    models = _model(tokenizer), _model(tokenizer)
    trainer = DPOTrainer(*models, args=DPOConfig(**COMMON), train_dataset=rows, processing_class=tokenizer)
    row = trainer.train_dataset[0]
    both = [row["prompt_ids"] + row[name] for name in ("chosen_ids", "rejected_ids")]
    loss = [[0] * len(row["prompt_ids"]) + [1] * len(row[name]) for name in ("chosen_ids", "rejected_ids")]
    return {"ids": both[0] + both[1], "loss": loss[0] + loss[1]}


if __name__ == "__main__":
    main()

"""Axolotl's side of the comparison of tokens: `python peer_side_axolotl.py CASES.json ANSWERS.json`, in axolotl's own environment."""

import json
import os
import sys
from pathlib import Path

os.environ["AXOLOTL_DO_NOT_TRACK"] = "1"

from axolotl.prompt_strategies import load
from axolotl.prompt_tokenizers import AlpacaPromptTokenizingStrategy
from axolotl.prompters import AlpacaPrompter
from axolotl.utils.dict import DictDefault
from transformers import AutoTokenizer

SHAREGPT = {"field_messages": "conversations", "message_property_mappings": {"role": "from", "content": "value"}}


def main() -> None:
    cases = json.loads(Path(sys.argv[1]).read_text())
    answers = {}
    for tokenizer in cases["tokenizers"]:
        answers[tokenizer["name"]] = {
            case["format"]: _answer(tokenizer, case) for case in cases["cases"] if case["kind"] in tokenizer["kinds"]
        }
    Path(sys.argv[2]).write_text(json.dumps(answers))


def _answer(about: dict, case: dict) -> dict:
    row = case["rows"][0]
    if case["kind"] == "pairs":
        return {"none": "compared with TRL, which axolotl trains pairs with"}
    if "prompt" in row:
        return {"none": "axolotl has no such format"}
    try:
        tokenizer = AutoTokenizer.from_pretrained(about["folder"])
        kind = "completion" if "text" in row else "chat_template"
        settings = DictDefault(
            train_on_inputs=False, sequence_len=4096, chat_template="tokenizer_default", eot_tokens=[about["end"]] if about["end"] else None
        )
        data = DictDefault({"type": kind, "train_on_eos": "turn", **(SHAREGPT if "conversations" in row else {})})
        if "instruction" in row:
            strategy = AlpacaPromptTokenizingStrategy(AlpacaPrompter(), tokenizer, False, 4096)
        else:
            strategy = load(kind, tokenizer, settings, data)
        found = strategy.tokenize_prompt({"text": [row["text"]]} if kind == "completion" else row)
        found = {name: value[0] if value and isinstance(value[0], list) else value for name, value in found.items()}
        return {"ids": list(found["input_ids"]), "loss": [int(label >= 0) for label in found["labels"]]}
    except Exception as error:  # noqa: BLE001 - a refusal is an answer
        return {"error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}


if __name__ == "__main__":
    main()

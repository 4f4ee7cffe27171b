"""LLaMA-Factory's side of the comparison of tokens: `python peer_side_llamafactory.py CASES.json ANSWERS.json`, in its own environment.

Its template is parsed from the tokenizer's, as it does where a user names none.
"""

import json
import os
import sys
from pathlib import Path

os.environ["DISABLE_VERSION_CHECK"] = "1"

from llamafactory.data.converter import get_dataset_converter
from llamafactory.data.parser import DatasetAttr
from llamafactory.data.processor import SupervisedDatasetProcessor
from llamafactory.data.template import get_template_and_fix_tokenizer
from llamafactory.hparams import DataArguments
from transformers import AutoTokenizer

OPENAI = {
    "formatting": "openai",
    "messages": "messages",
    "role_tag": "role",
    "content_tag": "content",
    "user_tag": "user",
    "assistant_tag": "assistant",
    "observation_tag": "tool",
    "function_tag": "function",
    "tools": "tools",
}


def main() -> None:
    cases = json.loads(Path(sys.argv[1]).read_text())
    answers = {}
    for tokenizer in cases["tokenizers"]:
        answers[tokenizer["name"]] = {
            case["format"]: _answer(tokenizer["folder"], case) for case in cases["cases"] if case["kind"] in tokenizer["kinds"]
        }
    Path(sys.argv[2]).write_text(json.dumps(answers))


def _answer(folder: str, case: dict) -> dict:
    row = case["rows"][0]
    if case["kind"] == "pairs" or "prompt" in row or "text" in row:
        return {"none": "not compared"}
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        arguments = DataArguments(template=None, cutoff_len=4096)
        template = get_template_and_fix_tokenizer(tokenizer, arguments)
        more = OPENAI if "messages" in row else {"formatting": "sharegpt"} if "conversations" in row else {"formatting": "alpaca"}
        convert = get_dataset_converter(more["formatting"], DatasetAttr("file", "rows", **more), arguments)
        given = convert({**row, "tools": json.dumps(row["tools"])} if "tools" in row else row)
        processor = SupervisedDatasetProcessor(template=template, tokenizer=tokenizer, processor=None, data_args=arguments)
        names = ("prompt", "response", "system", "tools")
        ids, labels = processor._encode_data_example(**{name: given[f"_{name}"] for name in names}, images=[], videos=[], audios=[])
        return {"ids": list(ids), "loss": [int(label >= 0) for label in labels]}
    except Exception as error:  # noqa: BLE001 - a refusal is an answer
        return {"error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}


if __name__ == "__main__":
    main()

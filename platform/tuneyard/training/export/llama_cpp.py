"""llama.cpp with one GGUF file, in a process of its own: a file that it cannot read may end the process.

`python -m tuneyard.training.export.llama_cpp FILE` reads a question as JSON from stdin, and writes the answer into the file that the
question names. Loads neither torch nor transformers.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

TOP = 10
"""Likeliest tokens of each position, with their log-probabilities."""


def answer(file: str, question: dict[str, Any]) -> dict[str, Any]:
    """`texts`: texts -> tokens. `prompts`: rows of tokens -> `predict` likeliest tokens, each with the likeliest ones of its position.
    `chats`: lists of messages -> the prompt that the file's template writes, or null where it refuses them.
    """
    import xllamacpp

    server = _server(xllamacpp, file, context=2 * max([len(row) for row in question["prompts"]] + [64]) + question["predict"])
    post = _post(server.listening_address)
    return {
        "texts": [post("/tokenize", content=text, add_special=False, parse_special=True)["tokens"] for text in question["texts"]],
        "prompts": [_predicted(post, row, question["predict"]) for row in question["prompts"]],
        "chats": [_rendered(post, chat) for chat in question["chats"]],
    }


def _server(xllamacpp: Any, file: str, context: int) -> Any:
    params = xllamacpp.CommonParams()
    params.model.path = file
    params.n_ctx = context
    params.n_parallel = 1
    params.n_gpu_layers = 0
    params.warmup = False
    params.verbosity = -1
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    return xllamacpp.Server(params)


def _post(address: str) -> Callable[..., Any]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def post(path: str, **body: Any) -> Any:
        ask = urllib.request.Request(address + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with opener.open(ask) as said:
            return json.load(said)

    return post


def _predicted(post: Callable[..., Any], row: list[int], predict: int) -> list[dict[str, Any]]:
    """The likeliest tokens, one request each: in a longer answer, llama.cpp leaves out the log-probabilities of tokens that end within a
    character. Such a token has none here.
    """
    made: list[dict[str, Any]] = []
    for _ in range(predict):
        prompt = [*row, *(at["token"] for at in made)]
        asked = {"n_predict": 1, "temperature": 0, "n_probs": TOP, "return_tokens": True}
        said = post("/completion", prompt=prompt, **asked)
        if not said["tokens"]:
            break
        told = said.get("completion_probabilities") or [{"top_logprobs": []}]
        made.append({"token": said["tokens"][0], "likeliest": {each["id"]: each["logprob"] for each in told[0]["top_logprobs"]}})
        if said["stop_type"] == "eos":
            break
    return made


def _rendered(post: Callable[..., Any], chat: list[dict[str, str]]) -> str | None:
    try:
        return str(post("/apply-template", messages=chat)["prompt"])
    except OSError:
        return None


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    Path(asked["answer"]).write_text(json.dumps(answer(sys.argv[1], asked)))

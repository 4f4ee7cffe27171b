"""What the engine of score tasks answers with an architecture's saved weights: vLLM on CPU, a process of its own each.

Its kernels on CPU know no heads as small as the other checks have: these models have two heads of 64.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.ranks.forks import ROOT, Call, called
from tests.zoo.rows import ANSWERS

MOST_USED = (
    *("llama", "qwen2", "qwen3", "qwen3_moe", "mistral", "mixtral", "gemma2", "gemma3_text", "phi3", "gpt2", "gpt_neox", "falcon"),
    *("granite", "olmo2", "smollm3"),
)
LIMIT_S = 240


def same_answers(model_type: str) -> int | str:
    """How many of the 24 answers of the engine are those of transformers; or the words of a failure."""
    with tempfile.TemporaryDirectory() as name:
        try:
            folder, ours = called([Call(_trained, (model_type, name))], timeout_s=LIMIT_S)[0]
        except RuntimeError as error:
            return f"not trained: {str(error)[-300:]}"
        done = subprocess.run(
            [sys.executable, "-m", "tests.zoo.engines", folder], cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if "Error" in line]
            return (errors or [f"it ended with {done.returncode}"])[-1][:300]
        theirs = json.loads(done.stdout.strip().splitlines()[-1])
        return sum(ours[asked] == theirs[asked] for asked in ANSWERS)


def vllm_knows(model_class: str) -> bool:
    """Whether vLLM has a class of this name. Loads vLLM."""
    from vllm.model_executor.models import ModelRegistry

    return model_class in ModelRegistry.get_supported_archs()


def _trained(model_type: str, name: str) -> tuple[str, dict[str, str]]:
    """In a fork: the saved model, and the answers of transformers."""
    from tests.zoo.checks import trained_for_engine

    from tuneyard.scoring.generation import Generator

    model = trained_for_engine(model_type, Path(name))
    generator = Generator(model, None, chat=True)
    return model, {asked: generator.answer(asked, len, max_tokens=12) for asked in ANSWERS}


def _answer(model: str) -> dict[str, str]:
    from transformers import AutoTokenizer

    from tuneyard.api import ScoreTask
    from tuneyard.scoring.engine import VllmEngine
    from tuneyard.scoring.exchange import Generate
    from tuneyard.scoring.prompts import PromptEncoder
    from tuneyard.scoring.settings import resolve_engine

    fields: dict[str, Any] = {"model": {"name": model}, "data": {"source": model}, "generation": {"maxTokens": 12}, "engine": {"batch": 8}}
    task = ScoreTask.model_validate(fields)
    settings = resolve_engine(task, Path(model), None, sku="cpu")
    prompts = PromptEncoder(AutoTokenizer.from_pretrained(model), chat=True, max_length=settings.max_length)
    engine = VllmEngine(settings, task.generation, prompts.ends)
    answers = engine.run(Generate(asked, prompts.prompt(asked)) for asked in ANSWERS)
    return {answer.key: answer.text or str(answer.error) for answer in answers}


if __name__ == "__main__":
    print(json.dumps(_answer(sys.argv[1])))

"""The small chat model that `benchmarks/defaults.py` and `benchmarks/new_user.py` tune: `python benchmarks/defaults_model.py FOLDER`.

A Llama of half a million parameters, trained from random weights on chats of general skills by a job of Tuneyard. It takes some minutes on
two cores. Its chat template knows tools.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from shutil import copytree, rmtree

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.defaults_data import data_sets
from benchmarks.defaults_words import skills
from benchmarks.new_user_journeys import PAIRS

CHATS = 8000
STEPS = 500
TEMPLATE = (
    "{%- if tools %}{{- '<|system|>\\nFunctions: ' }}{%- for tool in tools %}{{- tool.function | tojson + '\\n' }}{%- endfor %}{%- endif %}"
    "{%- for message in messages %}"
    "{{- '<|' + message.role + '|>\\n' }}"
    "{%- if message.role == 'assistant' %}"
    "{% generation %}{{- message.content }}"
    "{%- for call in message.tool_calls or [] %}"
    "{{- '<tool_call>{\"name\": \"' + call.function.name + '\", \"arguments\": ' + call.function.arguments | tojson + '}</tool_call>' }}"
    "{%- endfor %}{{- eos_token }}{% endgeneration %}{{- '\\n' }}"
    "{%- else %}{{- message.content + '\\n' }}{%- endif %}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|assistant|>\\n' }}{%- endif %}"
)
_JOB = """\
apiVersion: tuneyard.dev/v1alpha1
kind: JobSpec
metadata: {{name: small-chat-model}}
spec:
  tasks:
  - name: pretrain
    train:
      model: {{name: shape, init: scratch}}
      data: {{source: skills.jsonl, format: chat, pack: true, maxLength: 256}}
      optimizer: {{learningRate: 3e-3, warmup: 0.05, betas: [0.9, 0.95]}}
      batch: {{global: 8}}
      steps: {steps}
"""


def small_chat_model(folder: Path) -> Path:
    """The model's folder, which is made if it is not there; a run that was stopped goes on. Raises CalledProcessError."""
    done = folder / "model"
    if done.exists():
        return done
    if not (folder / "job.yaml").exists():
        rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        chats = list(skills(CHATS))
        (folder / "skills.jsonl").write_text("".join(f"{json.dumps({'messages': chat})}\n" for chat in chats), encoding="utf-8")
        _write_shape(folder / "shape", [*(turn["content"] for chat in chats for turn in chat), *_texts_of_data()])
        (folder / "job.yaml").write_text(_JOB.format(steps=STEPS), encoding="utf-8")
    command = [str(Path(sys.executable).parent / "tuneyard"), "run", "job.yaml", "--out", "run"]
    subprocess.run([*command, *(["--resume"] if (folder / "run").exists() else [])], cwd=folder, check=True)
    copytree(folder / "run" / "pretrain" / "model", folder / "copy", dirs_exist_ok=True)
    (folder / "copy").rename(done)  # complete, or not there
    return done


def _texts_of_data() -> Iterator[str]:
    """Texts as the data sets have them: a tokenizer of a language knows their words."""
    yield from (" ".join(pair) for pair in PAIRS)
    for data in data_sets():
        yield from islice((str(asked.prompt) + " " + asked.answer for asked in data.asked), 20)


def _write_shape(folder: Path, texts: list[str]) -> None:
    from tuneyard.data.small_model import SmallLlama, write_model

    shape = SmallLlama(hidden=128, ffn=352, layers=2, heads=4, kv_heads=2, vocabulary=1536, initializer_range=0.05)
    write_model(folder, shape, texts)
    settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": TEMPLATE}, indent=2), encoding="utf-8")


if __name__ == "__main__":
    print(small_chat_model(Path(sys.argv[1]).absolute()))

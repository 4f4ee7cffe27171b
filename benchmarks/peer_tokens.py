"""Tokens and loss of each row format under each chat template, beside TRL, axolotl and LLaMA-Factory, each in an environment of its own.

`python benchmarks/peer_tokens.py`: installs the peers (2 GB in uv's cache), asks each, and writes docs/benchmarks/peer_tokens.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.builders.templates import ALL, Template
from tests.peers.classes import BOTH_REFUSE, CLASSES, EQUAL, NOT_COMPARED, Made, class_of
from tests.peers.ours import ours_of, said_in
from tests.peers.rows import CHATS, PAIRS, TEXTS, Rows
from training_cases import write_page

from tuneyard.data import turn_end
from tuneyard.data.cache import cache_root
from tuneyard.data.canonical import Canonical
from tuneyard.data.roles import Pair, detect

HERE = Path(__file__).parent
FORMATS: dict[str, tuple[str, Rows]] = {
    name: (kind, rows) for kind, formats in (("chats", CHATS), ("texts", TEXTS), ("pairs", PAIRS)) for name, rows in formats.items()
}
TEXTS_AND_PAIRS_UNDER = "trl-qwen3"
"""Texts are not rendered, and TRL renders pairs for us: one template is enough for them."""
TORCH = ("torch==2.13.0",)
PACKAGES = {
    "axolotl": (
        *("axolotl==0.19.0", "transformers==5.16.1", "tokenizers==0.23.1", "huggingface_hub==1.17.0", "datasets==4.8.4", "trl==1.9.0"),
        *("accelerate==1.13.0", "peft==0.20.0", "pydantic==2.12.5", "typer", "colorama", "fire", "addict", "sentencepiece", "requests"),
        *("zstandard", "scipy", "einops", "python-dotenv", "posthog", "art", "mistral-common==1.11.5", "packaging"),
    ),
    "llamafactory": (
        *("llamafactory==0.9.5", "transformers==5.6.0", "peft==0.18.1", "trl==0.24.0", "datasets==4.0.0", "accelerate==1.11.0"),
        *("omegaconf", "fire", "tyro<0.9.0", "sentencepiece", "tiktoken", "protobuf", "einops", "scipy", "pandas", "hf-transfer"),
        *("torchdata==0.11.0", "torchaudio", "torchvision"),
    ),
}
"""Packages that the data code of each peer imports. The peer itself is installed without its other requirements, most of them for GPUs."""
_SHOWN = 300
_HEAD = """\
{templates} chat templates, read from the installed packages TRL and vLLM, each with a tokenizer that has its special tokens and another end
token of its own; {formats} formats of rows ({chats} under each template, the others under one). The settings mean the same: loss on what
the assistant says, or on the completion. axolotl is told the token that ends a turn (`eot_tokens`); LLaMA-Factory parses the template, as
it does where none is named, and its Alpaca rows are beside ours with `data.chat: true`. Each row has equal tokens with loss on the same
ones, or a class of difference, found by rules on the tokens (`tests/peers/classes.py`).

In the first run axolotl was right once: under vLLM's ChatML, which writes no `<|im_end|>` behind the last turn, our answers did not learn
their end. Mended since then (`data.turns.with_ends`)."""
NAMES = {"trl": "TRL", "axolotl": "axolotl", "llamafactory": "LLaMA-Factory"}


def main() -> None:
    templates = [template for template in ALL if template.source != "ours"]
    with tempfile.TemporaryDirectory() as folder:
        cases = _write_cases(Path(folder), templates)
        answers = {peer: _ask(peer, Path(folder)) for peer in NAMES}
        pairs = answers["trl"][TEXTS_AND_PAIRS_UNDER]
        found = {peer: list(_compared(cases, answers[peer], pairs, as_chat=peer == "llamafactory")) for peer in NAMES}
    write_page("peer_tokens", "Tokens and loss beside other trainers", list(_lines(found, len(templates))))


def _write_cases(folder: Path, templates: list[Template]) -> dict[str, Any]:
    tokenizers = []
    for template in templates:
        tokenizer = template.tokenizer()
        tokenizer.save_pretrained(folder / str(template))
        end = turn_end(tokenizer)
        kinds = ["chats", "texts", "pairs"] if str(template) == TEXTS_AND_PAIRS_UNDER else ["chats"]
        name = None if end is None else tokenizer.convert_ids_to_tokens(end)
        tokenizers.append({"name": str(template), "folder": str(folder / str(template)), "end": name, "kinds": kinds})
    cases = [{"format": name, "kind": kind, "rows": rows} for name, (kind, rows) in FORMATS.items()]
    # What we hand to TRL for pairs, beside what TRL makes of the rows itself.
    cases += [{"format": f"ours: {name}", "kind": "pairs", "rows": [_pair(rows[0])]} for name, rows in PAIRS.items()]
    found = {"tokenizers": tokenizers, "cases": cases}
    (folder / "cases.json").write_text(json.dumps(found))
    return found


def _pair(row: dict[str, Any]) -> dict[str, Any]:
    pair = Canonical(detect([row]))(row)
    assert isinstance(pair, Pair)
    return {"prompt": pair.prompt, "chosen": pair.chosen, "rejected": pair.rejected}


def _ask(peer: str, folder: Path) -> dict[str, dict[str, Any]]:
    python = sys.executable if peer == "trl" else _installed(peer)
    command = [str(python), str(HERE / f"peer_side_{peer}.py"), str(folder / "cases.json"), str(folder / f"{peer}.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"})
    if done.returncode:
        raise RuntimeError(f"{peer}: {done.stderr[-3000:]}")
    answers: dict[str, dict[str, Any]] = json.loads((folder / f"{peer}.json").read_text())
    return answers


def _installed(peer: str) -> Path:
    """The Python of the peer's own environment, which is made where it is not there."""
    home = cache_root(None) / "peers" / peer
    python = home / "bin" / "python"
    if not (home / ".ready").exists():
        uv = Path(sys.executable).parent / "uv"
        install = [str(uv), "pip", "install", "--quiet", "--python", str(python)]
        subprocess.run([str(uv), "venv", "--quiet", "--clear", "--python", "3.11", str(home)], check=True)
        subprocess.run(
            [*install, *TORCH, *(name for name in PACKAGES[peer] if not name.startswith((peer, "torchaudio", "torchvision")))], check=True
        )
        alone = [name for name in PACKAGES[peer] if name.startswith((peer, "torchaudio", "torchvision"))]
        subprocess.run([*install, "--no-deps", *alone], check=True)
        (home / ".ready").touch()
    return python


def _compared(
    cases: dict[str, Any], answers: dict[str, dict[str, Any]], pairs: dict[str, Any], *, as_chat: bool
) -> Iterator[tuple[str, str, str, str]]:
    """(template, format, class, what both made of it). `as_chat`: pairs of texts are rendered by the chat template."""
    from transformers import AutoTokenizer

    for about in cases["tokenizers"]:
        tokenizer = AutoTokenizer.from_pretrained(about["folder"])
        for name, (kind, rows) in FORMATS.items():
            if kind not in about["kinds"]:
                continue
            ours = Made.of(pairs[f"ours: {name}"]) if kind == "pairs" else ours_of(tokenizer, rows[0], as_chat=as_chat)
            theirs = Made.of(answers[about["name"]][name])
            found = class_of(ours, theirs, tokenizer, tuple(said_in(rows[0])), turn_end(tokenizer))
            yield about["name"], name, found, f"ours {_shown(ours, tokenizer)}; theirs {_shown(theirs, tokenizer)}"


def _shown(made: Made, tokenizer: Any) -> str:
    """The text of the row, with what carries loss in «»."""
    if made.refused:
        return f"refuses: {made.refused.splitlines()[0][:160]}"
    text, counting = "", False
    for token, counts in zip(made.ids, made.loss, strict=True):
        if bool(counts) != counting:
            text, counting = text + ("«" if counts else "»"), bool(counts)
        text += tokenizer.decode([token])
    return repr(text + ("»" if counting else ""))[:_SHOWN]


def _lines(found: dict[str, list[tuple[str, str, str, str]]], templates: int) -> Iterator[str]:
    versions = {"trl": version("trl")} | {peer: names[0].partition("==")[2] for peer, names in PACKAGES.items()}
    yield from _HEAD.format(templates=templates, formats=len(FORMATS), chats=len(CHATS)).splitlines()
    yield ""
    yield "| peer | version | rows compared | equal, or both refuse | equivalent | ours right | theirs right | not classed |"
    yield "|---|---|---|---|---|---|---|---|"
    for peer, rows in found.items():
        verdicts = Counter(_verdict(name) for *_, name, _ in rows)
        compared = sum(verdicts.values()) - verdicts[NOT_COMPARED]
        cells = [f"{verdicts[name]} ({verdicts[name] / compared:.0%})" for name in ("equal", "equivalent", "ours", "theirs", "")]
        yield f"| {NAMES[peer]} | {versions[peer]} | {compared} | " + " | ".join(cells) + " |"
    for peer, rows in found.items():
        yield from ["", f"## {NAMES[peer]}", "", "| class | rows | right | because | example |", "|---|---|---|---|---|"]
        classes: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
        for template, form, name, shown in rows:
            classes[name].append((template, form, shown))
        for name, examples in sorted(classes.items(), key=lambda item: -len(item[1])):
            if name != NOT_COMPARED:
                right, why = CLASSES.get(name, ("", ""))
                template, form, shown = examples[0]
                example = "" if name in (EQUAL, BOTH_REFUSE) else f"{template}, {form}: {_cell(shown)}"
                yield f"| {name} | {len(examples)} | {right} | {why} | {example} |"
        yield from [
            "",
            "By format: equal, or both refuse, of all that were compared.",
            "",
            "| format | equal | compared |",
            "|---|---|---|",
        ]
        for form in FORMATS:
            of_form = [name for _, each, name, _ in rows if each == form and name != NOT_COMPARED]
            if of_form:
                yield f"| {form} | {sum(_verdict(name) == 'equal' for name in of_form)} | {len(of_form)} |"


def _verdict(name: str) -> str:
    return "equal" if name in (EQUAL, BOTH_REFUSE) else name if name == NOT_COMPARED else CLASSES.get(name, ("", ""))[0]


def _cell(text: str) -> str:
    return "`" + text.replace("|", "¦").replace("`", "'") + "`"


if __name__ == "__main__":
    main()

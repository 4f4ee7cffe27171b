"""RedCoast's table of models under our tensor-parallel plans, and each matrix beside the plan of RedCoast's published rules.

Writes docs/benchmarks/redcoast_models.md.

python benchmarks/redcoast_models.py [--degree 2] [--only NAME]
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from importlib.metadata import version
from io import StringIO
from pathlib import Path
from typing import Any, Literal

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.ranks.pairs import PAIRED, Pairs, pairs_of

from tuneyard.cli import main as tuneyard

PAGE = Path(__file__).parents[1] / "docs/benchmarks/redcoast_models.md"
BEFORE = PAGE.with_name("tensor_parallel_pairs.md")
Cut = Literal["outputs", "inputs", "entries", "features", "whole"]
"""Dimension of a matrix that is cut: outputs or inputs of a linear, entries or features of an embedding."""


@dataclass(frozen=True)
class Model:
    """A model of RedCoast's table. `place`: its machines and the longest row there. `config`: its config.json."""

    name: str
    place: str
    config: Mapping[str, Any]

    @property
    def kind(self) -> str:
        return str(self.config["model_type"])

    @property
    def has_encoder(self) -> bool:
        return self.kind in ("bart", "t5")


def _opt(hidden: int, layers: int, heads: int) -> dict[str, Any]:
    shape = {"hidden_size": hidden, "word_embed_proj_dim": hidden, "ffn_dim": 4 * hidden, "num_hidden_layers": layers}
    return {"model_type": "opt", **shape, "num_attention_heads": heads, "vocab_size": 50272, "max_position_embeddings": 2048}


_BART = {"encoder_layers": 12, "decoder_layers": 12, "encoder_attention_heads": 16, "decoder_attention_heads": 16}
_BART |= {"d_model": 1024, "encoder_ffn_dim": 4096, "decoder_ffn_dim": 4096, "vocab_size": 50265, "max_position_embeddings": 1024}
_LLAMA = {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 32000}
_T5 = {"d_model": 4096, "d_ff": 10240, "d_kv": 64, "num_heads": 64, "num_layers": 24, "num_decoder_layers": 24, "vocab_size": 32128}
_GPTJ = {"n_embd": 4096, "n_layer": 28, "n_head": 16, "rotary_dim": 64, "vocab_size": 50400, "n_positions": 2048}
MODELS = (
    Model("BART-Large", "2 x 1080Ti (1024)", {"model_type": "bart", **_BART}),
    Model("GPT2-Large", "2 x 1080Ti (512)", {"model_type": "gpt2", "n_embd": 1280, "n_layer": 36, "n_head": 20, "vocab_size": 50257}),
    Model("LLaMA-7B", "4 x A100 (1024)", {"model_type": "llama", **_LLAMA, "tie_word_embeddings": False}),
    Model("GPT-J-6B", "4 x A100 (1024)", {"model_type": "gptj", **_GPTJ, "tie_word_embeddings": False}),
    Model("T5-XL-11B", "2 x 4 TPU-v4 (512)", {"model_type": "t5", **_T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    Model("OPT-13B", "2 x 4 TPU-v4 (1024)", _opt(5120, 40, 40)),
    Model("OPT-66B", "16 x 4 TPU-v4 (512)", _opt(9216, 64, 72)),
)
STYLES: Mapping[str, Cut] = {
    "colwise": "outputs",
    "packed_colwise": "outputs",
    "colwise_gather_output": "outputs",
    "rowwise": "inputs",
    "rowwise_split_input": "inputs",
    "embedding_rowwise": "entries",
    "embedding_colwise": "features",
}


@dataclass(frozen=True)
class Matrix:
    """A weight as Flax has it. `path`: modules that lead to it. `shape`: its dimensions there, `cuts`: what each of them is."""

    path: tuple[str, ...]
    shape: tuple[int, int]
    cuts: tuple[Cut, Cut]

    @property
    def is_embedding(self) -> bool:
        return "entries" in self.cuts

    @property
    def own(self) -> str:
        return self.path[-1]

    @property
    def in_attention(self) -> bool:
        return any("attention" in name.lower() or "attn" in name.lower() for name in self.path)


Rules = Callable[[Sequence[Matrix], int], Mapping[str, Cut]]
"""The cut of linears by their own name, and of all embeddings as `embedding`."""


def _of_name(matrix: Matrix) -> int | None:
    """Dimension of an attention projection by the second rule: 1 for queries, keys and values, 0 for the output. None: no such name."""
    if not matrix.in_attention:
        return None
    for letter in (matrix.own[0], matrix.own[-1]):
        if letter in "qkv":
            return 1
        if letter == "o":
            return 0
    return None


def first_rules(matrices: Sequence[Matrix], degree: int) -> Mapping[str, Cut]:
    """As published on 2024-02-28 (093f1c4): linears in the order of the length of their paths, then by name. Each other linear is cut along
    the last dimension that the linear before was not cut along."""
    found: dict[str, Cut] = {}
    entries = all(each.shape[0] % degree == 0 for each in matrices if each.is_embedding)
    found["embedding"] = "entries" if entries else "features"
    last: int | None = None
    for each in sorted((each for each in matrices if not each.is_embedding), key=lambda each: (len(each.path), each.path)):
        if each.own in found:
            continue
        named = _of_name(each)
        if named is not None:
            found[each.own] = each.cuts[named]
            continue
        free = [at for at in (1, 0) if at != last and each.shape[at] % degree == 0]
        if free:
            last = free[0]
            found[each.own] = each.cuts[last]
        else:
            found[each.own] = each.cuts[last] if last is not None and each.shape[last] % degree == 0 else "whole"
    return found


_OUTWARD, _INWARD = ("up", "gate", "wi"), ("down", "wo")


def later_rules(matrices: Sequence[Matrix], degree: int) -> Mapping[str, Cut]:
    """As published on 2024-12-09 (8129ab3): linears in the order of their own names. Usual names of feed-forward layers and heads have
    their dimension, and the others alternate."""
    found: dict[str, Cut] = {}
    last: int | None = None
    by_name: dict[str, list[Matrix]] = {}
    for each in matrices:
        by_name.setdefault("embedding" if each.is_embedding else each.own, []).append(each)
    for name, own in sorted(by_name.items()):
        valid = [at for at in (1, 0) if all(each.shape[at] % degree == 0 for each in own)]
        if not valid:
            found[name] = "whole"
            continue
        wanted = _named(name, own)
        at = valid[0] if wanted in (None, 1) else valid[-1]
        if wanted is None:
            at = valid[1] if at == last and len(valid) > 1 else at
            last = at
        found[name] = own[0].cuts[at]
    return found


def _named(name: str, own: Sequence[Matrix]) -> int | None:
    """Dimension of a usual name; None: it alternates."""
    if name == "embedding":
        return 0
    of_attention = _of_name(own[0]) if all(each.in_attention for each in own) else None
    if of_attention is not None:
        return of_attention
    if name.startswith(_OUTWARD) or "in" in name.split("_"):
        return 1
    if name.startswith(_INWARD) or "out" in name.split("_"):
        return 0
    return 1 if name.startswith("head") or name.endswith("head") else None


_TIED_HEAD = (
    "transformers 5 ties T5's head to its embedding, so the head has no row. Where Flax has a head of its own, the rules of February 2024",
    "begin to alternate with it, and `wi_0`, `wi_1` and `wo` are cut along inputs, outputs and inputs.",
)
RELEASES: Mapping[str, Rules] = {"February 2024": first_rules, "December 2024": later_rules}


@dataclass
class Compared:
    """One model: our rows by the name of a module, its matrices, and the plan of each release."""

    model: Model
    ours: Mapping[str, Mapping[str, Any]]
    matrices: Mapping[str, Matrix]
    plans: Mapping[str, Mapping[str, Cut]]
    numbers: str
    small: Pairs = field(default_factory=lambda: Pairs(""))

    def of_release(self, release: str, name: str) -> Cut:
        matrix = self.matrices[name]
        return self.plans[release]["embedding" if matrix.is_embedding else matrix.own]

    def our_cut(self, name: str) -> Cut:
        return STYLES.get(self.ours[name]["style"].partition(":")[0], "whole") if name in self.ours else "whole"

    def agreeing(self, release: str) -> int:
        return sum(self.of_release(release, name) == self.our_cut(name) for name in self.matrices)

    @property
    def paired(self) -> float:
        """Share of the parameters of the layers that are cut in pairs."""
        inside = [row for row in self.ours.values() if ".*" in row["name"]]
        return sum(row["parameters"] for row in inside if row["style"].partition(":")[0] in PAIRED) / sum(
            row["parameters"] for row in inside
        )

    @property
    def cut(self) -> float:
        rows = self.ours.values()
        return sum(row["parameters"] for row in rows if row["cut"]) / sum(row["parameters"] for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--degree", type=int, default=2)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    found = []
    for model in MODELS:
        if given.only in model.name:
            found.append(compared(model, given.degree))
            print(model.name, {name: found[-1].agreeing(name) for name in RELEASES}, len(found[-1].matrices), flush=True)
    if not given.only:
        PAGE.write_text(page(found, given.degree))


def compared(model: Model, degree: int) -> Compared:
    built = _built(model)
    matrices = dict(_matrices(built))
    rows, numbers = _ours(model, built, degree)
    all_matrices = [_matrix(built, name) for name in _linears_and_tables(built)]
    plans = {release: rules(all_matrices, degree) for release, rules in RELEASES.items()}
    return Compared(model, {row["name"]: row for row in rows}, matrices, plans, numbers, pairs_of(model.kind, degree))


def _built(model: Model) -> Any:
    """The model without weights."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM

    config = AutoConfig.for_model(**model.config)
    with torch.device("meta"):
        return (AutoModelForSeq2SeqLM if model.has_encoder else AutoModelForCausalLM).from_config(config)


def _linears_and_tables(built: Any) -> list[str]:
    """Modules with a matrix of their own; of tied ones the first."""
    return [name.removesuffix(".weight") for name, weight in built.named_parameters() if name.endswith(".weight") and weight.dim() == 2]


def _matrix(built: Any, name: str) -> Matrix:
    """Flax has the weight of a linear as inputs x outputs, and GPT-2's as outputs x inputs."""
    module = built.get_submodule(name)
    rows, columns = module.weight.shape
    path = tuple(name.split("."))
    if type(module).__name__ == "Conv1D":
        return Matrix(path, (columns, rows), ("outputs", "inputs"))
    if hasattr(module, "num_embeddings"):
        return Matrix(path, (rows, columns), ("entries", "features"))
    return Matrix(path, (columns, rows), ("inputs", "outputs"))


def _matrices(built: Any) -> Iterable[tuple[str, Matrix]]:
    """By the name with `*` for the number of a layer, each once."""
    for name in _linears_and_tables(built):
        yield re.sub(r"\.\d+(?=\.|$)", ".*", name), _matrix(built, name)


def _ours(model: Model, built: Any, degree: int) -> tuple[list[Mapping[str, Any]], str]:
    """Our rows, and the numbers of modules that a rank has a share of: by `tuneyard plan` of a JobSpec. A model with an encoder is trained
    by a program, whose model the plan does not make: by `tuneyard.parallel`, as the command says."""
    from tuneyard.parallel import explain_tensor_parallel

    plan = explain_tensor_parallel(built, degree)
    numbers = ", ".join(f"`{own}`" for own in dict.fromkeys(own for owns in plan.divisions.values() for own in sorted(owns)))
    if model.has_encoder:
        rows = [
            {"name": row.name, "style": row.style, "cut": row.is_cut, "parameters": row.parameters, "why": row.why}
            for row in plan.placements
        ]
        return rows, numbers
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(StringIO()) as shown:
        (Path(folder) / "config.json").write_text(json.dumps(dict(model.config)))
        task = {"name": "train", "train": {"model": {"name": folder}, "data": {"source": "rows.jsonl"}, "steps": 1}}
        job = {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": "redcoast"}, "spec": {"tasks": [task]}}
        (file := Path(folder) / "job.yaml").write_text(json.dumps(job))
        code = tuneyard(["plan", str(file), "--explain-parallel", str(degree), "-o", "json"])
    assert code == 0, shown.getvalue()
    return json.loads(shown.getvalue()), numbers


def before_of(kind: str) -> tuple[str, str, str]:
    """Share in pairs, collectives and kB of a model type before numbers of modules were divided, from the page that measured it."""
    for line in BEFORE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] == kind:
            return (cells[1], cells[3], cells[5]) if len(cells) > 5 else (cells[1], cells[2], cells[3])
    return "", "", ""


def page(found: Sequence[Compared], degree: int) -> str:
    """The page."""
    lines = [
        "# RedCoast's models under our plans",
        "",
        f"`python benchmarks/redcoast_models.py`, {datetime.date.today()}, {os.cpu_count()} cores, no GPU: "
        f"torch {version('torch')}, transformers {version('transformers')}, degree {degree}.",
        "",
        "The models are those of the table in RedCoast's README, in their full sizes. Our plans are those of",
        "`tuneyard plan --explain-parallel`, and for T5 and BART, which programs train, of `tuneyard.parallel.explain_tensor_parallel`.",
        "",
        "**The text of the paper (arXiv 2310.16355) was not at hand**, so its appendix is not quoted here. Beside our plans stands what",
        "RedCoast's published rules give for the same models: those of 2024-02-28 (commit 093f1c4) and of 2024-12-09 (commit 8129ab3),",
        "restated in this script for the weights as Flax has them.",
        "",
        "*Matrices*: linears and embeddings, those of all layers counted once. RedCoast's rules leave norms and biases whole.",
        "*Cut*: of all parameters, embeddings and head included. *In pairs*: parameters of the layers that are cut by columns and rows",
        "with shards between, in the full size. *Collectives*, *kB*: of one forward and backward pass of the small config of the model",
        "type. *Before*: of that config, before numbers of modules were divided, from [tensor_parallel_pairs](tensor_parallel_pairs.md).",
        "",
        "| model | machines (longest row) | cut | in pairs | before | collectives before | after | kB before | after | divided |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for each in found:
        share, collectives, exchanged = before_of(each.model.kind)
        after = f"{collectives} | {each.small.collectives} | {exchanged} | {each.small.bytes / 1e3:.0f}"
        lines.append(
            f"| {each.model.name} | {each.model.place} | {each.cut:.1%} | {each.paired:.1%} | {share} | {after} | {each.numbers} |"
        )
    lines += [
        "",
        "GPT-2's collectives were few before, because nothing of its layers was cut.",
        "",
        "## The same dimension as RedCoast",
        "",
        "| model | matrices | " + " | ".join(f"as the rules of {release}" for release in RELEASES) + " |",
        "|---|---:|" + "---:|" * len(RELEASES),
    ]
    for each in found:
        lines.append(
            f"| {each.model.name} | {len(each.matrices)} | " + " | ".join(str(each.agreeing(release)) for release in RELEASES) + " |"
        )
    for each in found:
        if each.model.name != "OPT-66B":
            lines += ["", *_rows(each)]
    return "\n".join([*lines, ""])


def _rows(each: Compared) -> list[str]:
    first, later = RELEASES
    lines = [f"## {each.model.name}, row for row", "", f"| weight | {first} | {later} | ours | |", "|---|---|---|---|---|"]
    for name in each.matrices:
        ours = each.our_cut(name)
        others = [each.of_release(release, name) for release in RELEASES]
        said = "agree" if others == [ours, ours] else _difference(others, ours)
        why = "" if others[-1] == ours else f": {each.ours[name]['why'] if name in each.ours else 'it has no row of its own'}"
        lines.append(f"| `{name}` | {others[0]} | {others[1]} | {ours} | {said}{_cell(why)} |")
    return [*lines, *(["", *_TIED_HEAD] if each.model.kind == "t5" else [])]


def _difference(others: Sequence[Cut], ours: Cut) -> str:
    if others[-1] == ours:
        return "agrees with the later rules"
    return "agrees with the first rules" if others[0] == ours else "differs"


def _cell(text: str) -> str:
    return text.replace("|", "/").replace("<", "(").replace(">", ")")


if __name__ == "__main__":
    main()

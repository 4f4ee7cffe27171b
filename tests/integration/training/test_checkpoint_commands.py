"""`tuneyard checkpoints`: list, verify, convert and prune what real runs have written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.builders.checkpoints import checkpoint, saves_in_turn
from tests.builders.models import cpu_plan, tiny_config, train_request, train_task, write_tokenizer
from tests.integration.training.conftest import Material
from tests.ranks.groups import results_in_ranks
from tests.servers.installed import S3, webhdfs_port
from transformers import AutoModelForCausalLM

from tuneyard.cli import main
from tuneyard.storage import open_store
from tuneyard.training import TrainRequest, train

__all__ = ["webhdfs_port"]


def request_of(folder: Path, material: Material, *, plan: dict[str, Any] | None = None, **task: Any) -> TrainRequest:
    fields = {"checkpoint": {"everySteps": 2, "keep": 3}, "steps": 4, **task}
    return train_request(folder, train_task(material.model, material.text, **fields), cpu_plan(**(plan or {})))


@dataclass(frozen=True)
class Ran:
    """What a command answered."""

    code: int
    out: str
    err: str


@pytest.fixture
def checkpoints(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """`tuneyard checkpoints …`."""

    def run(*argv: Any) -> Ran:
        capsys.readouterr()
        code = main(["checkpoints", *map(str, argv)])
        shown = capsys.readouterr()
        return Ran(code, shown.out, shown.err)

    return run


@pytest.fixture(scope="module")
def output(material: Material, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Output of a task with checkpoints of steps 2 and 4. Tests that change something take a copy."""
    folder = tmp_path_factory.mktemp("checkpoints")
    with saves_in_turn():
        train(request_of(folder, material))
    return folder / "out"


def weights_in(folder: Path) -> dict[str, torch.Tensor]:
    return {name: tensor for path in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(path).items()}


def assert_same_weights(converted: Path, final: Path) -> None:
    """The same names with the same values, bit for bit."""
    ours, theirs = weights_in(converted), weights_in(final)
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert ours[name].dtype == tensor.dtype, name
        assert torch.equal(ours[name], tensor), name


def test_a_run_is_listed_and_found_whole(output: Path, checkpoints: Callable[..., Ran]) -> None:
    shown = checkpoints("list", output)
    assert shown.code == 0
    assert "checkpoints/step-2.1" in shown.out
    assert "given back by test, attempt 1" in shown.out
    listed = json.loads(checkpoints("list", output.parent, "-o", "json").out)
    assert [(row["step"], row["workers"], row["zero"], row["whole"]) for row in listed["checkpoints"]] == [(2, 1, 0, True), (4, 1, 0, True)]
    assert not listed["held"]

    verified = checkpoints("verify", output)
    assert (verified.code, verified.out) == (0, "steps 2, 4: whole\n")


def test_damage_is_named_file_by_file(output: Path, tmp_path: Path, checkpoints: Callable[..., Ran]) -> None:
    shutil.copytree(output, tmp_path / "out")
    shard = checkpoint(tmp_path / "out", 2) / "rank-00000-00000.safetensors"
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(bytes(content))
    (checkpoint(tmp_path / "out", 4) / "state.json").unlink()

    shown = checkpoints("verify", tmp_path / "out")

    assert shown.code == 1
    assert shown.out.splitlines() == [
        "damaged: checkpoints/step-2.1/rank-00000-00000.safetensors differs from the committed content (SHA-256)",
        "damaged: checkpoints/step-4.1/state.json is missing",
        "steps 2, 4: 2 damaged",
    ]
    assert checkpoints("verify", tmp_path / "out", "--step", 2).code == 1
    refused = checkpoints("convert", tmp_path / "out", tmp_path / "model", "--step", 2)
    assert refused.code == 1
    assert "rank-00000-00000.safetensors is damaged" in refused.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


def test_a_run_goes_on_after_prune(material: Material, tmp_path: Path, checkpoints: Callable[..., Ran]) -> None:
    whole = train(request_of(tmp_path, material))

    planned = checkpoints("prune", tmp_path / "out", "--keep", 1, "--dry-run")
    pruned = checkpoints("prune", tmp_path / "out", "--keep", 1)

    assert planned.out.startswith("would remove checkpoints/step-2.1")
    assert (planned.code, pruned.code) == (0, 0)
    assert "kept: 4" in pruned.out
    assert [row["step"] for row in json.loads(checkpoints("list", tmp_path / "out", "-o", "json").out)["checkpoints"]] == [4]
    again = train(request_of(tmp_path, material))
    assert (again.resumed_from, again.losses) == (4, whole.losses)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["convert", "OUT", "OUT"], "is not empty"),
        (["convert", "OUT", "NEW", "--step", "3"], "no checkpoint of step 3"),
        (["convert", "OUT", "NEW", "--max-shard", "much"], "--max-shard: 'much' is not a size"),
        (["list", "NEW"], "holds no checkpoints"),
        (["prune", "OUT", "--keep", "0"], "--keep"),
    ],
)
def test_bad_input_is_refused_in_two_lines(
    argv: list[str], message: str, output: Path, tmp_path: Path, checkpoints: Callable[..., Ran]
) -> None:
    shown = checkpoints(*(arg.replace("OUT", str(output)).replace("NEW", str(tmp_path / "new")) for arg in argv))

    assert shown.code == 2
    error, next_step = shown.err.splitlines()
    assert message in error
    assert next_step.startswith("next: ")
    assert not (tmp_path / "new").exists()


def test_what_two_zero_3_workers_saved_becomes_the_final_model(material: Material, tmp_path: Path, checkpoints: Callable[..., Ran]) -> None:
    plans = {"full": "fp32", "half": "bf16", "lora": "fp32"}
    methods: dict[str, Any] = {"lora": {"method": {"lora": {"rank": 4, "saveModules": ["lm_head"]}}}}
    requests = [
        request_of(tmp_path / name, material, plan={"workers": 2, "zero": 3, "precision": precision}, **methods.get(name, {}))
        for name, precision in plans.items()
    ]
    results_in_ranks(requests, workers=2)

    for name in plans:
        shown = checkpoints("convert", tmp_path / name / "out", tmp_path / name / "converted")
        assert (shown.code, shown.out) == (0, f"{tmp_path / name / 'converted'}\n")
        assert_same_weights(tmp_path / name / "converted", tmp_path / name / "out" / "model")


def test_files_are_no_larger_than_asked_for_and_load(output: Path, tmp_path: Path, checkpoints: Callable[..., Ran]) -> None:
    assert checkpoints("convert", output, tmp_path / "model", "--max-shard", "100Ki", "--dtype", "bf16").code == 0

    files = sorted(tmp_path.glob("model/*.safetensors"))
    assert [path.name for path in files] == [f"model-{n:05d}-of-{len(files):05d}.safetensors" for n in range(1, len(files) + 1)]
    assert len(files) > 1
    assert all(sum(t.nbytes for t in load_file(path).values()) <= 100 * 1024 for path in files)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert model.dtype == torch.bfloat16
    final = AutoModelForCausalLM.from_pretrained(output / "model", dtype=torch.bfloat16)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(model.parameters(), final.parameters(), strict=True))


def test_an_earlier_step_and_tied_weights(material: Material, tmp_path: Path, checkpoints: Callable[..., Ran]) -> None:
    base = write_base(tmp_path / "base", tiny_config("gpt2"))
    two = train(request_of(tmp_path / "two", material, model={"name": str(base)}, steps=2, optimizer=CONSTANT))
    four = train(request_of(tmp_path / "four", material, model={"name": str(base)}, steps=4, optimizer=CONSTANT))
    assert four.losses[:2] == two.losses

    assert checkpoints("convert", tmp_path / "four" / "out", tmp_path / "model", "--step", 2).code == 0

    assert "lm_head.weight" not in weights_in(tmp_path / "model")
    assert_same_weights(tmp_path / "model", tmp_path / "two" / "out" / "model")


CONSTANT = {"learningRate": 1e-3, "schedule": "constant", "warmup": 0}


@pytest.mark.parametrize("adapter", ["lora", "dora"])
def test_an_adapter_loads_with_peft(adapter: str, material: Material, tmp_path: Path, checkpoints: Callable[..., Ran]) -> None:
    from peft import PeftModel

    train(request_of(tmp_path, material, method={adapter: {"rank": 4}}))

    assert checkpoints("convert", tmp_path / "out", tmp_path / "adapter").code == 0

    assert_same_weights(tmp_path / "adapter", tmp_path / "out" / "model")
    tokens = torch.arange(2, 40)[None]
    logits = []
    for folder in (tmp_path / "adapter", tmp_path / "out" / "model"):
        base = AutoModelForCausalLM.from_pretrained(material.model, dtype=torch.float32)
        logits.append(PeftModel.from_pretrained(base, folder)(tokens).logits)
    assert torch.equal(*logits)
    assert not torch.equal(logits[0], AutoModelForCausalLM.from_pretrained(material.model, dtype=torch.float32)(tokens).logits)


def write_base(folder: Path, config: Any) -> Path:
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    write_tokenizer(folder)
    return folder


SHAPE = {
    "vocab_size": 384,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "eos_token_id": 0,
    "bos_token_id": None,
    "pad_token_id": 1,
}


def mixtral() -> Any:
    from transformers import MixtralConfig

    return MixtralConfig(**SHAPE, num_local_experts=4, num_experts_per_tok=2)


def deepseek() -> Any:
    """One dense layer, then one with experts; a buffer that is part of the saved model."""
    from transformers import DeepseekV3Config

    experts = {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "moe_intermediate_size": 24}
    heads = {
        "q_lora_rank": 16,
        "kv_lora_rank": 8,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 8,
        "v_head_dim": 8,
        "first_k_dense_replace": 1,
    }
    return DeepseekV3Config(**{**SHAPE, "num_key_value_heads": 4}, **experts, **heads)


@pytest.mark.parametrize(
    ("config", "on_disk"),
    [(mixtral, ".block_sparse_moe.experts.3.w2.weight"), (deepseek, ".mlp.gate.e_score_correction_bias")],
    ids=["mixtral", "deepseek"],
)
def test_experts_have_the_names_and_the_form_that_others_expect(
    config: Callable[[], Any], on_disk: str, material: Material, tmp_path: Path, checkpoints: Callable[..., Ran]
) -> None:
    base = write_base(tmp_path / "base", config())
    train(request_of(tmp_path, material, model={"name": str(base)}))

    assert checkpoints("convert", tmp_path / "out", tmp_path / "model", "--max-shard", "20Ki").code == 0

    assert len(list(tmp_path.glob("model/*.safetensors"))) > 2
    assert any(name.endswith(on_disk) for name in weights_in(tmp_path / "model"))
    assert_same_weights(tmp_path / "model", tmp_path / "out" / "model")
    ours, theirs = (AutoModelForCausalLM.from_pretrained(tmp_path / name).state_dict() for name in ("model", "out/model"))
    assert all(torch.equal(ours[name], tensor) for name, tensor in theirs.items())
    before = AutoModelForCausalLM.from_pretrained(base).state_dict()
    assert not any(torch.equal(ours[name], tensor) for name, tensor in before.items() if name.endswith("gate_up_proj"))


def all_commands_at(remote: str, output: Path, folder: Path, checkpoints: Callable[..., Ran]) -> None:
    """Copy an output to `remote` and run every command there."""
    store = open_store(f"{remote}/train")
    for path in sorted(output.rglob("*")):
        if path.is_file():
            store.put_file(path.relative_to(output).as_posix(), path)

    for uri in (f"{remote}/train", f"{remote}/train/checkpoints", remote):
        assert [row["step"] for row in json.loads(checkpoints("list", uri, "-o", "json").out)["checkpoints"]] == [2, 4]
    assert checkpoints("verify", remote).code == 0
    made = checkpoints("convert", remote, f"{remote}/converted", "--max-shard", "200Ki")
    assert (made.code, made.out) == (0, f"{remote}/converted\n")
    open_store(f"{remote}/converted").download_folder("", folder / "converted")
    assert_same_weights(folder / "converted", output / "model")
    assert checkpoints("prune", f"{remote}/train", "--keep", 1).code == 0
    assert [row["step"] for row in json.loads(checkpoints("list", remote, "-o", "json").out)["checkpoints"]] == [4]


def test_everything_works_on_s3(s3: S3, output: Path, tmp_path: Path, checkpoints: Callable[..., Ran]) -> None:
    all_commands_at(f"s3://{s3.bucket}/commands", output, tmp_path, checkpoints)


def test_everything_works_on_hdfs(webhdfs_port: int, output: Path, tmp_path: Path, checkpoints: Callable[..., Ran]) -> None:
    remote = f"webhdfs://tester@127.0.0.1:{webhdfs_port}/commands"
    all_commands_at(remote, output, tmp_path, checkpoints)
    (kept,) = json.loads(checkpoints("list", remote, "-o", "json").out)["checkpoints"]
    assert kept["committed_at"].startswith("20")

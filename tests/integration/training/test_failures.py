"""What goes wrong is said with cause and next step, and leaves nothing half done."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from tests.builders.checkpoints import committed
from tests.builders.models import cpu_plan, train_request, train_task, write_model, write_tokenizer
from tests.integration.training.conftest import Material

from tuneyard.api import BadInput, FailureKind, JobFailed, StorageError
from tuneyard.tracking.events import Checkpointed, Event, Warned
from tuneyard.training import train
from tuneyard.training.proofs.saved import SavedProof
from tuneyard.training.trainer import SteppedTrainer


def test_a_loss_that_explodes_ends_the_run_and_nothing_is_committed_after_it(material: Material, tmp_path: Path) -> None:
    optimizer = {"learningRate": 1e15, "schedule": "constant", "warmup": 0, "maxGradNorm": 0}
    task = train_task(material.model, material.text, optimizer=optimizer, checkpoint={"everySteps": 1})

    with pytest.raises(JobFailed, match=r"the loss became (nan|inf) at step \d") as failure:
        train(train_request(tmp_path, task))

    assert "learningRate" in failure.value.next_step
    bad_step = int(failure.value.cause.split("at step ")[1].split()[0])
    assert all(step < bad_step for step in committed(tmp_path / "out"))
    assert not (tmp_path / "out" / "model").exists()


@pytest.mark.parametrize(("at", "zero", "max_grad_norm"), [(3, 0, 1), (6, 0, 0), (6, 2, 1)])
def test_a_gradient_that_is_not_finite_ends_the_run_before_it_is_saved(
    at: int, zero: int, max_grad_norm: int, material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss of its step is a number: only the weights are broken, and the next loss, if there is one."""
    monkeypatch.setattr(SteppedTrainer, "compute_loss", _broken_at(at, SteppedTrainer.compute_loss))
    task = train_task(material.model, material.text, steps=6, optimizer={"maxGradNorm": max_grad_norm}, checkpoint={"everySteps": 1})

    with pytest.raises(JobFailed, match=f"the gradient of step {at} was not finite"):
        train(train_request(tmp_path, task, cpu_plan(zero=zero)))

    assert max(committed(tmp_path / "out")) == at - 1
    assert not (tmp_path / "out" / "model").exists()


def _broken_at(step: int, compute_loss: Any) -> Any:
    """A loss whose value is right, and whose gradient at `step` is infinity times zero."""

    def broken(trainer: SteppedTrainer, model: Any, *arguments: Any, **options: Any) -> Any:
        loss = compute_loss(trainer, model, *arguments, **options)
        if model.training and trainer.state.global_step == step - 1:
            loss = loss + (loss * 0).sqrt() * 0
        return loss

    return broken


@pytest.mark.parametrize(
    ("files", "missing"),
    [
        ([], "it has no config.json, and no adapter"),
        (["config.json"], "no weights"),
        (["adapter_config.json"], "is an adapter"),
    ],
)
def test_a_folder_that_is_no_model_is_refused_with_what_it_lacks(
    files: list[str], missing: str, material: Material, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for name in files:
        (folder / name).write_text("{}")

    with pytest.raises(BadInput) as refusal:
        train(train_request(tmp_path, train_task(folder, material.text), refused="config.json" in files))

    assert missing in str(refusal.value)
    assert str(folder) in refusal.value.cause


def test_a_path_that_is_not_there_is_refused(material: Material, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no folder"):
        train(train_request(tmp_path, train_task(tmp_path / "nowhere", material.text)))


def test_a_model_without_a_tokenizer_is_refused(material: Material, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        (folder / name).write_bytes((material.model / name).read_bytes())

    with pytest.raises(BadInput, match="no tokenizer"):
        train(train_request(tmp_path, train_task(folder, material.text)))


def test_a_disk_that_takes_no_more_leaves_earlier_checkpoints_alone(material: Material, tmp_path: Path) -> None:
    task = train_task(material.model, material.text, checkpoint={"everySteps": 2})
    limit = FileLimit()

    with pytest.raises(StorageError) as failure, limit:
        train(train_request(tmp_path, task), emit=limit.after_first_checkpoint)

    assert "could not be written" in failure.value.cause
    assert "untouched" in failure.value.next_step
    assert failure.value.kind is FailureKind.STORAGE
    assert committed(tmp_path / "out") == [2]
    assert not list(tmp_path.glob("out/checkpoints/step-4.*/*.safetensors"))
    assert train(train_request(tmp_path, task)).resumed_from == 2


class FileLimit:
    """Makes the kernel refuse files above 100 kB, as a full disk would, once the first checkpoint is committed."""

    def __enter__(self) -> None:
        self._before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def after_first_checkpoint(self, event: Event) -> None:
        if isinstance(event, Checkpointed):
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, self._before[1]))

    def __exit__(self, *_: object) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self._before)


def test_memory_that_is_not_there_is_named_with_the_sizes_and_the_next_smaller_plan(material: Material, tmp_path: Path) -> None:
    with pytest.raises(JobFailed, match="out of memory") as failure, address_space(extra_gb=0.15):
        train(
            train_request(
                tmp_path, train_task(material.model, material.text, batch={"global": 2048}), cpu_plan(micro_batch=2048, grad_accum=1)
            )
        )

    assert failure.value.kind is FailureKind.OUT_OF_MEMORY
    assert "batch.micro to 1024" in failure.value.next_step


@contextmanager
def address_space(extra_gb: float) -> Iterator[None]:
    """Lets this process have no more than `extra_gb` beyond what it has mapped now."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + int(extra_gb * 1e9), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def test_an_adapter_on_modules_that_do_not_exist_is_refused(material: Material, tmp_path: Path) -> None:
    task = train_task(material.model, material.text, method={"lora": {"rank": 4, "targets": ["query_projection"]}})

    with pytest.raises(BadInput, match="query_projection"):
        train(train_request(tmp_path, task, refused=True))


def test_the_number_of_ranks_must_be_the_plan_s(material: Material, tmp_path: Path) -> None:
    plan: Any = cpu_plan(workers=2)

    with pytest.raises(BadInput, match="the plan is for 2 workers, and 1 were started"):
        train(train_request(tmp_path, train_task(material.model, material.text), plan))


def test_the_tokenizer_alone_is_no_model(material: Material, tmp_path: Path) -> None:
    write_tokenizer(tmp_path / "tokenizer")

    with pytest.raises(BadInput, match="not a model"):
        train(train_request(tmp_path, train_task(tmp_path / "tokenizer", material.text)))


def altered(folder: Path, change: Callable[[dict[str, Any], dict[str, Any]], object]) -> Path:
    """A base whose configuration and weights `change` has changed."""
    write_model(folder)
    config, weights = json.loads((folder / "config.json").read_text()), load_file(folder / "model.safetensors")
    change(config, weights)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


UP = "model.layers.0.mlp.up_proj.weight"


@pytest.mark.parametrize("zero", [0, 3])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param(lambda _, weights: weights[UP][3, 4:6].fill_(float("nan")), rf"1 weights of .* hold NaN or infinity: {UP}", id="nan"),
        pytest.param(lambda config, _: config.update(intermediate_size=96), r"have other shapes than its config\.json says", id="shapes"),
        pytest.param(lambda config, _: config.update(num_hidden_layers=3), r"lacks 9 weights", id="layers"),
    ],
)
def test_a_base_that_cannot_be_right_is_refused(
    change: Callable[[dict[str, Any], dict[str, Any]], object], words: str, zero: int, material: Material, tmp_path: Path
) -> None:
    base = altered(tmp_path / "base", change)

    with pytest.raises(BadInput, match=words):
        train(train_request(tmp_path, train_task(base, material.text, steps=1), cpu_plan(zero=zero)))


def test_weights_that_a_configuration_has_no_place_for_are_named(material: Material, tmp_path: Path) -> None:
    told: list[Any] = []
    base = altered(tmp_path / "base", lambda config, _: config.update(num_hidden_layers=1))

    train(train_request(tmp_path, train_task(base, material.text, steps=1), cpu_plan()), emit=told.append)

    (words,) = [event.message for event in told if isinstance(event, Warned)]
    assert "has 9 weights that its config.json has no place for; they are left out: model.layers.1.input_layernorm.weight" in words


def test_a_file_of_weights_that_is_cut_short_is_refused(material: Material, tmp_path: Path) -> None:
    base = write_model(tmp_path / "base")
    content = (base / "model.safetensors").read_bytes()
    (base / "model.safetensors").write_bytes(content[: len(content) // 2])

    with pytest.raises(BadInput, match="is damaged: it should have"):
        train(train_request(tmp_path, train_task(base, material.text, steps=1), cpu_plan()))


def test_an_attempt_that_died_in_the_proof_is_followed_by_one_that_saves(
    material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint of the last step is committed before it."""
    request = train_request(tmp_path, train_task(material.model, material.text, steps=2), cpu_plan())
    with monkeypatch.context() as patched:
        patched.setattr(SavedProof, "prove_weights", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            train(request)

    result = train(request)

    assert (result.status, result.resumed_from, result.steps) == ("succeeded", 2, 2)
    assert result.details["proof"]["model"] < 1e-5

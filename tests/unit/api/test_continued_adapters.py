"""A job whose task continues the adapter of another task: `tuneyard validate` refuses settings that the adapter does not have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tuneyard.api import BadInput, load_jobspec

LORA = {"lora": {"rank": 4}}


def job(tmp_path: Path, *methods: dict[str, Any], path: str | None = None) -> Path:
    """Tasks t0, t1, …: each starts from the one before."""
    tasks = []
    for number, method in enumerate(methods):
        start = {"from": f"t{number - 1}", **({"path": path} if path else {})} if number else {"name": "org/model"}
        tasks.append({"name": f"t{number}", "train": {"model": start, "data": {"source": "d.jsonl"}, "method": method}})
    file = tmp_path / "job.yaml"
    body = {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": "j"}, "spec": {"tasks": tasks}}
    file.write_text(yaml.safe_dump(body))
    return file


@pytest.mark.parametrize(
    ("methods", "words"),
    [
        (
            [LORA, {"lora": {"rank": 8}}],
            "lora.rank: is 8, and the adapter of the task t0, which it continues, has 4: leave it out",
        ),
        (
            [{"lora": {}}, {"lora": {"alpha": 99}}],
            "lora.alpha: is 99, and the adapter of the task t0, which it continues, has 32",
        ),
        ([LORA, {"dora": {}}], "train.method: is dora, and the adapter of the task t0, which it continues, is lora: write lora"),
        ([LORA, {"lora": {}}, {"lora": {"rank": 16}}], "rank: is 16, and the adapter of the task t1, which it continues, has 4"),
    ],
)
def test_settings_of_another_adapter_are_refused_with_both_values(methods: list[dict[str, Any]], words: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as error:
        load_jobspec(job(tmp_path, *methods))

    assert words in str(error.value)
    assert "job.yaml:" in str(error.value)


@pytest.mark.parametrize(
    "methods",
    [
        [LORA, {"lora": {}}],
        [LORA, {"lora": {"rank": 4, "alpha": 8, "dropout": 0.1, "merge": True}}],
        [LORA, {"qlora": {}}],
        [{"full": {}}, {"lora": {"rank": 8}}],
        [LORA, {"full": {}}, {"lora": {"rank": 8}}],
    ],
)
def test_settings_that_are_left_out_or_the_same_pass(methods: list[dict[str, Any]], tmp_path: Path) -> None:
    assert load_jobspec(job(tmp_path, *methods))


def test_merged_weights_take_any_adapter(tmp_path: Path) -> None:
    assert load_jobspec(job(tmp_path, {"lora": {"rank": 4, "merge": True}}, {"lora": {"rank": 8}}, path="merged"))


def test_what_a_user_has_written_is_known_after_the_way_to_a_rank(tmp_path: Path) -> None:
    """Defaults are not compared, so they must not become settings in between."""
    import pickle

    from tuneyard.api import JobSpec

    written = load_jobspec(job(tmp_path, {"lora": {"alpha": 8}}))
    sent = JobSpec.model_validate(written.to_yaml_dict())
    train = pickle.loads(pickle.dumps(sent.spec.tasks[0])).train

    assert train.method.lora.model_fields_set == {"alpha"}

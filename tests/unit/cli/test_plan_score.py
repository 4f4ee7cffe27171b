"""`tuneyard plan` of score tasks, as a user runs it: speed by batch, time and cost of the rows, and what cannot be planned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.test_plan import LLAMA_8B, rows

from tuneyard.cli import main

JOB = """\
apiVersion: tuneyard.dev/v1alpha1
kind: JobSpec
metadata: {name: small}
spec:
  tasks:
  - name: judge
    score:
      model: {name: ./model}
      data: {source: chats.jsonl, prompt: question, reference: answer}
      generation: {maxTokens: 100}
    resources: {sku: [a100-80gb, h100-80gb], instances: 2}
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(LLAMA_8B))
    lines = [json.dumps({"question": "a" * 400, "answer": "b" * 40}) for _ in range(300)]
    (tmp_path / "chats.jsonl").write_text("\n".join(lines) + "\n")
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


def changed(job: Path, old: str, new: str) -> str:
    assert old in JOB
    job.write_text(JOB.replace(old, new))
    return str(job)


def words(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_rows_are_counted_and_have_a_time_and_a_cost_on_each_gpu(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = rows(capsys, str(job), "--price", "h100=2.5", "--price", "a100=1.8")
    assert [row["sku"] for row in found] == ["a100-80gb", "h100-80gb"]
    a100, h100 = found
    assert (h100["rows"], h100["prompt_tokens"], h100["output_tokens"]) == (300, 100, 100)
    assert h100["duration_s"] == pytest.approx(sum(h100["duration_terms_s"].values()))
    assert h100["cost"] == pytest.approx(h100["duration_s"] / 3600 * 2 * 2.5)
    assert h100["tokens_per_s"] == pytest.approx(2 * h100["speed_by_batch"][-1]["output_tokens_per_s"])
    assert h100["tokens_per_s"] > a100["tokens_per_s"]


def test_speed_stands_by_batch_up_to_that_of_the_engine(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = rows(capsys, changed(job, "generation:", "engine: {batch: 48}\n      generation:"))[0]
    assert [each["batch"] for each in row["speed_by_batch"]] == [1, 2, 4, 8, 16, 32, 48]
    rates = [each["output_tokens_per_s"] for each in row["speed_by_batch"]]
    assert rates == sorted(rates)
    assert all(each["ttft_s"] > 0 and each["tpot_s"] > 0 for each in row["speed_by_batch"])


def test_the_text_names_the_best_price_and_draws_the_rates(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(job), "--price", "h100=9", "--price", "a100=1"]) == 0
    text = capsys.readouterr().out
    assert "judge: cheapest: 2 engines of a100-80gb, batch 64, 300 rows in about" in text
    assert "judge: fastest: 2 engines of h100-80gb, batch 64" in text
    assert "output tokens/s of one engine by batch: █ a100-80gb  ▒ h100-80gb" in text
    bars = [line for line in text.splitlines() if line.lstrip(" 0123456789").startswith(("█", "▒"))]
    assert len(bars) == 2 * 7


def test_what_is_assumed_is_said(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(job)]) == 0
    said = words(capsys)
    assert "300 rows were counted: prompts of 100 tokens, taken to have 4 characters a token" in said
    assert "answers of 100 tokens (generation.maxTokens), the most they can have" in said


def test_a_task_whose_metrics_compare_likelihoods_has_rows_per_second(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = rows(capsys, changed(job, "generation:", "metrics: [perplexity]\n      generation:"))[0]
    assert (row["tokens_per_s"], row["output_tokens"], row["evaluated_tokens"]) == (0, 0, 110)
    assert row["rows_per_s"] > 0
    assert row["duration_s"] > 0


def test_a_model_of_two_gpus_is_priced_with_both(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = changed(job, "{name: ./model}", "{name: mistralai/Mixtral-8x7B-v0.1}")
    Path(spec).write_text(Path(spec).read_text().replace("generation:", "engine: {tensorParallel: 2}\n      generation:"))
    row = rows(capsys, spec, "--price", "h100=2.5")[-1]
    assert (row["tensorParallel"], row["rented"], row["cost_per_hour"]) == (2, 4, 10)


def test_without_rows_there_is_a_speed_and_no_time(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (job.parent / "chats.jsonl").unlink()
    row = rows(capsys, str(job))[0]
    assert (row["rows"], row["duration_s"], row["cost"]) == (None, None, None)
    assert row["tokens_per_s"] > 0
    assert "the time of the data set is unknown" in row["length_from"]


def test_rows_that_are_not_read_count_as_many_as_the_task_allows(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = rows(capsys, changed(job, "source: chats.jsonl", "source: 's3://evals/rows.jsonl', limit: 5000"))[0]
    assert (row["rows"], row["prompt_tokens"], row["too_long"], row["unusable"]) == (5000, 512, None, None)
    assert row["duration_s"] > 0
    assert "5,000 rows are taken, the most that data.limit and data.sample allow" in row["length_from"]
    row = rows(capsys, changed(job, "source: chats.jsonl", "source: 's3://evals/rows.jsonl'"))[0]
    assert (row["rows"], row["duration_s"]) == (None, None)


@pytest.mark.parametrize(
    ("content", "cause"), [("", "the file is empty"), ('{"other": "x"}\n', "no column question (data.prompt); columns found: other")]
)
def test_a_data_set_without_a_row_to_score_has_no_time_and_says_why(
    job: Path, content: str, cause: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (job.parent / "chats.jsonl").write_text(content)
    row = rows(capsys, str(job))[0]
    assert (row["rows"], row["duration_s"]) == (None, None)
    assert cause in row["length_from"]


def test_a_task_whose_prompts_all_lack_room_for_an_answer_would_fail(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = changed(job, "generation:", "engine: {maxLength: 90}\n      generation:")
    [row] = rows(capsys, spec, "--price", "h100=2.5", code=1)
    assert (row["fits"], row["rows"], row["scored_rows"], row["too_long"]) == (False, 300, 0, 300)
    assert main(["plan", spec]) == 1
    said = words(capsys)
    assert said.startswith("judge: the task would fail: 300 of 300 rows would end as errors, more than maxErrorFraction 0.1 tolerates")
    assert "about 300 of 300 rows have prompts beyond the 90 tokens of an engine; raise engine.maxLength" in said


BROKEN = ['{"question": "cut of', "[1, 2]", '{"question": null, "answer": "b"}', '{"question": " ", "answer": "b"}']


def test_rows_that_would_be_errors_have_no_part_in_tokens_time_and_cost(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = changed(job, "generation:", "maxErrorFraction: 0.5\n      engine: {maxLength: 1000}\n      generation:")
    without = rows(capsys, spec, "--price", "h100=2.5")[-1]
    good = (job.parent / "chats.jsonl").read_text()
    long = json.dumps({"question": "a" * 4000, "answer": "b" * 40})
    (job.parent / "chats.jsonl").write_text("\n".join([*BROKEN, *[long] * 6]) + "\n" + good)
    row = rows(capsys, spec, "--price", "h100=2.5")[-1]
    assert (row["rows"], row["scored_rows"], row["unusable"], row["too_long"]) == (310, 300, 4, 6)
    for name in ("prompt_tokens", "output_tokens", "duration_s", "cost", "tokens_per_s"):
        assert row[name] == without[name], name
    assert main(["plan", spec]) == 0
    said = words(capsys)
    assert "300 rows in about" in said
    assert "310 rows were counted" in said
    assert "4 of 310 rows cannot be scored" in said
    assert "about 6 of 310 rows have prompts beyond the 1,000 tokens of an engine" in said


def test_a_task_with_more_broken_rows_than_it_tolerates_would_fail(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = (job.parent / "chats.jsonl").read_text().splitlines()[:10]
    (job.parent / "chats.jsonl").write_text("\n".join([*good, *BROKEN]) + "\n")
    [row] = rows(capsys, str(job), code=1)
    assert "4 of 14 rows would end as errors, more than maxErrorFraction 0.1 tolerates" in row["reason"]
    assert "`tuneyard data inspect` shows the rows" in row["reason"]
    (job.parent / "chats.jsonl").write_text("\n".join(BROKEN[2:]) + "\n")
    [row] = rows(capsys, changed(job, "generation:", "maxErrorFraction: 1\n      generation:"), code=1)
    assert "2 of 2 rows would end as errors: 2 of 2 rows cannot be scored" in row["reason"]


def test_no_more_sequences_are_in_flight_than_there_are_rows(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = changed(job, "prompt: question", "limit: 10, prompt: question")
    Path(spec).write_text(Path(spec).read_text().replace("instances: 2", "instances: 4"))
    row = rows(capsys, spec, "--price", "h100=2.5")[-1]
    assert row["batch"] == row["speed_by_batch"][-1]["batch"] == 3
    assert row["rows_per_s"] == pytest.approx(10 / 3 * row["speed_by_batch"][-1]["rows_per_s"])
    assert row["tokens_per_s"] == pytest.approx(100 * row["rows_per_s"])
    assert row["cost_per_1000_rows"] == pytest.approx(1000 / row["rows_per_s"] / 3600 * 4 * 2.5)


def test_options_that_a_score_task_does_not_use_are_said(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for output in ("table", "json"):
        assert main(["plan", str(job), "--price", "l40s=1", "--workers", "4", "-o", output]) == 0
        said = capsys.readouterr().err
        assert "--price l40s-48gb is not used: no task is planned on l40s-48gb; add --sku l40s-48gb" in said
        assert "--workers 4 is not used" in said
    assert main(["plan", str(job), "--price", "h100=1"]) == 0
    assert "is not used" not in capsys.readouterr().err


def test_a_sweep_without_a_train_task_is_refused(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(job), "--sweep", "flash"]) == 2
    assert "--sweep is of train tasks, and the job has none" in capsys.readouterr().err


def test_one_token_is_no_tokens(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", changed(job, "maxTokens: 100", "maxTokens: 1")]) == 0
    assert "answers of 1 token (generation.maxTokens)" in words(capsys)


def test_a_length_beyond_the_model_is_refused_once(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = changed(job, "generation:", "engine: {maxLength: 9000}\n      generation:")
    [row] = rows(capsys, spec, code=1)
    assert row["reason"] == (
        "judge: engine.maxLength is 9000, but the model was built for 8192 positions; set engine.maxLength to at most 8192"
    )


def test_a_length_without_room_for_an_answer_is_refused(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [row] = rows(capsys, changed(job, "generation:", "engine: {maxLength: 1}\n      generation:"), code=1)
    assert row["reason"].endswith("set engine.maxLength to at least 2")


def test_an_engine_of_more_gpus_than_a_machine_has_does_not_fit(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = changed(job, "generation:", "engine: {tensorParallel: 16}\n      generation:")
    for row in rows(capsys, spec, code=1):
        assert row["fits"] is False
        assert "the ranks of an engine are on one machine; set engine.tensorParallel to 1" in row["reason"]
    assert all(row["engines_per_node"] == 1 for row in rows(capsys, spec, "--gpus-per-node", "16"))


def test_a_degree_that_does_not_divide_kv_heads_is_refused_with_those_that_work(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = {"hidden_size": 1536, "num_attention_heads": 12, "num_key_value_heads": 3, "intermediate_size": 4608}
    (job.parent / "model" / "config.json").write_text(json.dumps(LLAMA_8B | small))
    found = rows(capsys, changed(job, "generation:", "engine: {tensorParallel: 2}\n      generation:"), code=1)
    assert "tensorParallel 2 does not divide 3 KV heads; set engine.tensorParallel to 1, 3 or 6" in found[0]["reason"]


def test_a_batch_whose_activations_do_not_fit_is_refused_for_its_size(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = rows(capsys, changed(job, "generation:", "engine: {batch: 1000000}\n      generation:"), code=1)
    assert "engine.batch 1,000,000 is too large for 1 x a100-80gb" in found[0]["reason"]
    assert "set engine.batch to auto, or to at most" in found[0]["reason"]


@pytest.mark.parametrize("flag", [{}, {"is_encoder_decoder": True}])
def test_an_encoder_with_a_decoder_is_refused_and_validate_warns(
    job: Path, flag: dict[str, bool], capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = {"model_type": "t5", "d_model": 64, "num_layers": 2, "num_heads": 2, "d_ff": 128, "vocab_size": 100}
    (job.parent / "model" / "config.json").write_text(json.dumps(sizes | flag))
    [row] = rows(capsys, str(job), code=1)
    assert "a t5 model has an encoder beside its decoder" in row["reason"]
    assert main(["validate", str(job)]) == 0
    assert "spec.tasks[0].score.model: a t5 model has an encoder beside its decoder" in capsys.readouterr().err


def test_an_encoder_has_no_cache_and_no_plan(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {"model_type": "bert", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 100}
    (job.parent / "model" / "config.json").write_text(json.dumps(config))
    [row] = rows(capsys, str(job), code=1)
    assert row["reason"].startswith("judge: no KV cache, and no engine that generates with it: a bert model is an encoder")


def test_a_state_space_model_has_no_cache_and_is_not_predicted(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config: dict[str, Any] = {"model_type": "mamba", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 100, "state_size": 8}
    (job.parent / "model" / "config.json").write_text(json.dumps(config))
    [row] = rows(capsys, str(job))
    assert row["fits"] is None
    assert row["reason"].startswith("judge: a mamba model keeps no KV cache")

"""Real engines in a real Ray: what is scored, and that nothing is lost or doubled when an engine or the driver is killed."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.builders.models import CHAT_TEMPLATE, sentences, tokenizer_of, write_model
from tests.builders.scores import score_request
from tests.integration.scoring.conftest import Score, a_worker_killed, score_until_killed

from tuneyard.api import BadInput
from tuneyard.scoring import ScoreRequest, ScoreResult
from tuneyard.scoring.prompts import PromptEncoder
from tuneyard.tracking import Event, Warned

ROWS = 96


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model saved by transformers, an adapter saved by PEFT, their merged weights, and questions with answers; one row is too long."""
    import torch
    from peft import LoraConfig, PeftModel, get_peft_model
    from transformers import AutoModelForCausalLM

    made = tmp_path_factory.mktemp("scoring")
    write_model(made / "base", hidden_size=128, num_attention_heads=2, num_key_value_heads=1)
    adapted = get_peft_model(AutoModelForCausalLM.from_pretrained(made / "base"), LoraConfig(r=4, target_modules="all-linear"))
    for name, weights in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weights, std=0.1)  # PEFT starts B at zero: such an adapter would change nothing
    adapted.save_pretrained(made / "adapter")
    merged = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(made / "base"), made / "adapter").merge_and_unload()
    merged.save_pretrained(made / "merged")
    for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (made / "merged" / file).write_bytes((made / "base" / file).read_bytes())
    texts = sentences(2 * ROWS)
    rows = [{"question": texts[i], "answer": texts[ROWS + i], "n": i} for i in range(ROWS)]
    rows[5]["question"] = "cat " * 1000
    rows[6]["question"] = " "
    (made / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return made


def request(folder: Path, output: str, model: str = "base", *, instances: int = 1, **changes: Any) -> ScoreRequest:
    fields: dict[str, Any] = {
        "model": {"name": str(folder / model)},
        "data": {"source": str(folder / "rows.jsonl"), "prompt": "question", "reference": "answer"},
        "generation": {"maxTokens": 24},
        "engine": {"batch": 8},
        "metrics": ["exact_match", "rouge_l", "bleu", "perplexity"],
        "rowsPerPart": 8,
    }
    return score_request(folder, output, fields | changes, instances=instances)


@pytest.fixture(scope="module")
def base(folder: Path, score: Score) -> ScoreResult:
    """The base model's result, from one engine that nothing happened to."""
    result: ScoreResult = score(request(folder, "out-base"))
    return result


def table(result: ScoreResult) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(result.output).to_pylist()
    return rows


def assert_every_row_once_in_input_order(result: ScoreResult) -> None:
    assert [row["row"] for row in table(result)] == list(range(ROWS))
    assert [row["n"] for row in table(result)] == list(range(ROWS))


def transformers_losses(folder: Path, model: str, adapter: bool, rows: list[dict[str, Any]]) -> list[float]:
    """Loss of each reference as transformers computes it from labels, in fp32."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    loaded = AutoModelForCausalLM.from_pretrained(folder / model, dtype=torch.float32)
    if adapter:
        loaded = PeftModel.from_pretrained(loaded, folder / "adapter")
    prompts = PromptEncoder(AutoTokenizer.from_pretrained(folder / model), chat=None, max_length=256)
    losses = []
    for row in rows:
        tokens = prompts.likelihood(row["question"], row["answer"])
        labels = [token if counts else -100 for token, counts in zip(tokens.ids, tokens.counted, strict=True)]
        with torch.no_grad():
            losses.append(loaded(torch.tensor([tokens.ids]), labels=torch.tensor([labels])).loss.item())
    return losses


def test_rows_come_out_in_input_order_with_errors_of_their_own(base: ScoreResult) -> None:
    assert_every_row_once_in_input_order(base)
    rows = table(base)
    errors = {row["row"]: row["error"] for row in rows if row["error"] is not None}
    assert sorted(errors) == [5, 6]
    assert "engine.maxLength 256" in errors[5]
    assert "question is empty" in errors[6]
    assert (base.rows, base.errors, base.status) == (ROWS, 2, "succeeded")
    assert all(row["finish_reason"] in ("stop", "length") and row["output_tokens"] > 0 for row in rows if row["error"] is None)
    assert base.output_tokens == sum(row["output_tokens"] for row in rows)
    assert base.output_tokens_per_s > 0
    assert base.mfu > 0  # above 1 where the peak of this machine was measured beside other work
    assert 0 < base.latency_s["p50"] <= base.latency_s["p90"] <= base.latency_s["p99"]


def test_perplexity_is_the_loss_that_transformers_computes(folder: Path, base: ScoreResult) -> None:
    rows = [row for row in table(base) if row["error"] is None]

    losses = transformers_losses(folder, "base", False, rows[:16])

    assert [row["nll"] / row["reference_tokens"] for row in rows[:16]] == pytest.approx(losses, rel=1e-4)
    assert base.metrics["loss"] == pytest.approx(sum(r["nll"] for r in rows) / sum(r["reference_tokens"] for r in rows))


def test_choices_have_the_likelihoods_and_accuracies_that_transformers_and_lm_evaluation_harness_give_them(
    folder: Path, score: Score, tmp_path: Path
) -> None:
    """acc and acc_norm by the formulas of lm-evaluation-harness, over logits of transformers."""
    import numpy as np
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    texts = sentences(40)
    asked = [{"question": texts[i], "choices": [texts[-1 - i][:9], "the cat sat", texts[i + 1][:20]], "right": i % 3} for i in range(24)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    data = {"source": str(tmp_path / "rows.jsonl"), "prompt": "question", "reference": "right", "chat": False}
    asked_for = {"data": data, "choices": {"column": "choices"}, "metrics": ["acc", "acc_norm", "calibration_error"]}

    result = score(request(folder, "out-choices", **asked_for))

    tokenizer = AutoTokenizer.from_pretrained(folder / "base")
    model = AutoModelForCausalLM.from_pretrained(folder / "base", dtype=torch.float32)
    expected = []
    for row in asked:
        logs = []
        for choice in row["choices"]:
            whole, context = (tokenizer(text)["input_ids"] for text in (f"{row['question']} {choice}", row["question"]))
            with torch.no_grad():
                likelihoods = model(torch.tensor([whole])).logits[0].log_softmax(-1)
            logs.append(sum(likelihoods[place - 1, whole[place]].item() for place in range(len(context), len(whole))))
        expected.append(logs)
    rows = table(result)
    assert [row["choice_logs"] for row in rows] == [pytest.approx(logs, rel=1e-4) for logs in expected]
    lengths = [np.array([len(choice) for choice in row["choices"]], float) for row in asked]
    acc = [float(np.argmax(logs) == row["right"]) for logs, row in zip(expected, asked, strict=True)]
    acc_norm = [float(np.argmax(logs / size) == row["right"]) for logs, size, row in zip(expected, lengths, asked, strict=True)]
    assert result.metrics["acc"] == pytest.approx(np.mean(acc))
    assert result.metrics["acc_norm"] == pytest.approx(np.mean(acc_norm))
    assert 0 <= result.metrics["calibration_error"] <= 1


def test_an_adapter_counts_like_its_merged_weights(folder: Path, base: ScoreResult, score: Score) -> None:
    perplexity_only = {"metrics": ["perplexity"]}
    adapted = score(request(folder, "out-adapter", "adapter", **perplexity_only))
    merged = score(request(folder, "out-merged", "merged", **perplexity_only))

    rows = [row for row in table(adapted) if row["error"] is None][:8]
    assert [row["nll"] / row["reference_tokens"] for row in rows] == pytest.approx(
        transformers_losses(folder, "base", True, rows), rel=1e-3
    )
    assert adapted.metrics["loss"] == pytest.approx(merged.metrics["loss"], rel=1e-3)
    alone = {row["row"]: row["nll"] for row in table(base)}
    assert max(abs(row["nll"] / alone[row["row"]] - 1) for row in rows) > 0.01  # random weights: the means hardly differ
    assert adapted.output_tokens == 0


def test_an_engine_killed_mid_run_costs_no_row(folder: Path, score: Score) -> None:
    seen: list[Event] = []

    with a_worker_killed(folder / "out-killed", 1, "ray::VllmWorker"):
        result = score(request(folder, "out-killed", instances=2, generation={"maxTokens": 48}), emit=seen.append)

    assert any(isinstance(event, Warned) and "died" in event.message for event in seen)
    assert result.details["engine_deaths"] == 1
    assert_every_row_once_in_input_order(result)
    assert (result.rows, result.errors) == (ROWS, 2)


def test_a_run_whose_driver_was_killed_goes_on_to_the_same_metrics(
    folder: Path, base: ScoreResult, score: Score, engine_server: Path
) -> None:
    asked = request(folder, "out-resumed")
    score_until_killed(asked, 2, engine_server)

    result = score(replace(asked, attempt=2))

    assert 0 < result.rows_resumed < ROWS
    assert_every_row_once_in_input_order(result)
    assert (result.rows, result.errors) == (base.rows, base.errors)
    assert result.metrics == pytest.approx(base.metrics, rel=1e-4)


def test_answers_follow_a_schema_unless_they_are_cut_off(folder: Path, score: Score) -> None:
    """A model of random weights writes JSON of the schema, because it can write nothing else."""
    schema = {
        "type": "object",
        "properties": {"verdict": {"enum": ["good", "bad"]}, "sure": {"type": "boolean"}},
        "required": ["verdict", "sure"],
        "additionalProperties": False,
    }
    result = score(request(folder, "out-schema", generation={"maxTokens": 48, "schema": schema}, metrics=[]))

    answers = [row for row in table(result) if row["error"] is None]
    whole = [json.loads(row["output"]) for row in answers if row["finish_reason"] == "stop"]
    assert whole
    assert all(set(answer) == {"verdict", "sure"} and answer["verdict"] in ("good", "bad") for answer in whole)
    assert result.off_schema == result.cut_off == len(answers) - len(whole)


def test_being_asked_to_stop_leaves_what_is_committed(folder: Path, score: Score) -> None:
    result = score(request(folder, "out-stopped"), should_stop=lambda: True)

    assert (result.status, result.rows) == ("stopped", 0)


def test_answers_end_where_the_template_ends_turns_and_cut_off_ones_are_warned_of(folder: Path, score: Score) -> None:
    """A model that says one token for ever: the mark behind a turn, which neither tokenizer nor model names as an end."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder / "base")
    tokenizer = AutoTokenizer.from_pretrained(folder / "base")
    tokenizer.chat_template = tokenizer.chat_template.replace("<|end|>", "<|system|>")
    mark = tokenizer.convert_tokens_to_ids("<|system|>")
    with torch.no_grad():
        model.model.norm.weight.zero_()[0] = 1.0
        model.lm_head.weight.zero_()
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        model.model.embed_tokens.weight[:, 0] = 1.0
        model.lm_head.weight[mark, 0] = 1.0
    model.save_pretrained(folder / "marks")
    tokenizer.save_pretrained(folder / "marks")
    seen: list[Event] = []
    rows = {"data": {"source": str(folder / "rows.jsonl"), "prompt": "question", "limit": 4}, "metrics": []}
    turns = [("system", "be brief"), ("user", "the cat"), ("assistant", "sat"), ("user", "where?"), ("assistant", "on a mat")]
    talks = [[{"role": role, "content": text} for role, text in turns[start:stop]] for start, stop in [(0, 4), (1, 2), (1, 4), (0, 5)]]
    (folder / "talks.jsonl").write_text("".join(json.dumps({"question": talk}) + "\n" for talk in talks))
    talking = {"data": {"source": str(folder / "talks.jsonl"), "prompt": "question"}, "metrics": [], "maxErrorFraction": 0.5}

    ended = score(request(folder, "out-marks", "marks", **talking), emit=seen.append)

    rendered = ["<|system|>be brief<|system|>", "<|user|>the cat<|system|>", "<|assistant|>sat<|system|>", "<|user|>where?<|system|>"]
    texts = ["".join(rendered[start:stop]) + "<|assistant|>" for start, stop in [(0, 4), (1, 2), (1, 4)]]
    lengths = [len(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts]
    assert [(row["finish_reason"], row["output_tokens"], row["output"]) for row in table(ended)[:3]] == [("stop", 1, "")] * 3
    assert [row["input_tokens"] for row in table(ended)[:3]] == lengths
    assert table(ended)[3]["error"] == "the prompt ends with a turn of the assistant: move the answer to the reference column"
    assert ended.cut_off == 0
    plain = score(request(folder, "out-plain", "marks", **{**rows, "data": {**rows["data"], "chat": False}}), emit=seen.append)
    assert (plain.cut_off, {row["finish_reason"] for row in table(plain)}) == (4, {"length"})
    (warning,) = [event.message for event in seen if isinstance(event, Warned) and "cut off" in event.message]
    assert "4 of 4 answers were cut off at maxTokens 24" in warning


def test_thoughts_whose_marks_are_special_tokens_are_told_apart(folder: Path, score: Score) -> None:
    """A model that says one token after the other: thoughts that its template has opened, the mark of their end, an answer, the end."""
    import torch
    from transformers import AutoModelForCausalLM

    template = CHAT_TEMPLATE.replace("<|assistant|>{%", "<|assistant|><think>{%")
    tokenizer = tokenizer_of(["<|user|>", "<|assistant|>", "<|system|>", "<think>", "</think>"], eos="<|end|>", chat_template=template)
    chain = tokenizer("<think>cat</think>sat<|end|>", add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(chain, skip_special_tokens=True) == "catsat"
    model = AutoModelForCausalLM.from_pretrained(folder / "base")
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        model.model.norm.weight.fill_(1.0)
        model.model.embed_tokens.weight.zero_()[:, -1] = 1.0
        model.lm_head.weight.zero_()
        for place, (token, after) in enumerate(pairwise(chain)):
            model.model.embed_tokens.weight[token].zero_()[place] = 1.0
            model.lm_head.weight[after, place] = 1.0
    model.save_pretrained(folder / "thinks")
    tokenizer.save_pretrained(folder / "thinks")

    rows = {"data": {"source": str(folder / "rows.jsonl"), "prompt": "question", "limit": 2}, "metrics": []}
    found = table(score(request(folder, "out-thinks", "thinks", **rows)))
    stopped = table(score(request(folder, "out-stop", "thinks", **rows, generation={"stop": ["sat"]})))

    assert [(row["output"], row["reasoning"], row["finish_reason"]) for row in found] == [("sat", "cat", "stop")] * 2
    assert [(row["output"], row["reasoning"], row["finish_reason"]) for row in stopped] == [("", "cat", "stop")] * 2


def test_a_chat_without_a_template_is_refused_by_the_engine_that_loads(folder: Path, score: Score) -> None:
    bare = folder / "bare"
    bare.mkdir()
    for file in (folder / "base").iterdir():
        if file.name != "chat_template.jinja":
            (bare / file.name).write_bytes(file.read_bytes())
    data = {"source": str(folder / "rows.jsonl"), "prompt": "question", "reference": "answer", "chat": True}

    with pytest.raises(BadInput, match="no chat template"):
        score(request(folder, "out-bare", "bare", data=data))


def test_a_judge_that_says_nonsense_is_asked_twice_and_costs_no_other_row(folder: Path, base: ScoreResult, score: Score) -> None:
    """A model with random weights gives no score. It judges a sample of the answers of the other one."""
    asked: dict[str, Any] = {
        "data": {"source": base.output, "prompt": "question", "reference": "answer", "sample": 20, "sampleSeed": 1},
        "metrics": [],
        "judge": {"rubric": "Is it right?"},
        "maxErrorFraction": 1.0,
    }
    write_model(folder / "judge", hidden_size=128, num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=2048)
    result = score(request(folder, "out-judged", "judge", **asked))

    rows = table(result)
    assert len({row["row"] for row in rows}) == result.rows == 20
    assert [row["row"] for row in rows] == [row["input_row"] for row in rows] == sorted(row["row"] for row in rows)
    unscored = [row for row in rows if (row["error"] or "").startswith("the judge gave no score from 1 to 5, when asked twice")]
    assert result.details["judge_retries"] >= len(unscored) > 0
    assert all(row["output"] is not None and row["output_tokens"] for row in unscored)
    assert all(("was cut off" in row["error"]) == (row["finish_reason"] == "length") for row in unscored)
    assert result.metrics.get("judged", 0.0) == pytest.approx(sum(row["judge"] is not None for row in rows) / 20)

"""The quickstart's corpus, and data sets that `datasets` saved."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tuneyard.api import BadInput, ScoreData, TrainData
from tuneyard.data import Prepared, ScoreRows, open_dataset, prepare


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("corpus")
    subprocess.run([sys.executable, "-m", "tuneyard.data.stdlib", str(out), "--samples", "300", "--heldout", "20"], check=True)
    return out


def test_the_corpus_is_trained_on_and_scored(corpus: Path, tmp_path: Path) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(corpus / "model")
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(corpus / "model"))
    assert 3e6 < model.num_parameters() < 6e6
    chats = TrainData(source=str(corpus / "train.jsonl"), pack=True, max_length=512)
    prepared = prepare(chats, tokenizer, objective="sft", seed=0, cache_dir=tmp_path)
    assert (prepared.report.format, prepared.report.samples, prepared.chat_template) == ("chat", 300, None)
    assert 0.2 < prepared.report.loss_tokens / prepared.report.tokens < 0.8
    rows = ScoreRows.open(ScoreData(source=str(corpus / "heldout.parquet"), reference="reference"))
    assert rows.count() == 20
    assert not any(row["error"] for row in rows.read(0, 20))


def test_nothing_held_out_is_in_training(corpus: Path) -> None:
    train = [json.loads(line) for line in (corpus / "train.jsonl").read_text().splitlines()]
    texts = [json.loads(line) for line in (corpus / "text.jsonl").read_text().splitlines()]
    held_out = pq.read_table(corpus / "heldout.parquet").to_pylist()
    assert not {row["module"] for row in held_out} & {row["module"] for row in [*train, *texts]}
    assert not {row["reference"] for row in held_out} & {row["messages"][1]["content"] for row in train}


def test_a_saved_dataset_and_one_of_its_splits(tmp_path: Path, make: Callable[..., Prepared]) -> None:
    import datasets

    rows = datasets.Dataset.from_dict({"text": ["the cat", "sat on"]})
    datasets.DatasetDict({"train": rows, "test": rows.select([0])}).save_to_disk(tmp_path / "saved")
    assert len(make(tmp_path / "saved", file_type="hf").train) == 2
    assert len(make(tmp_path / "saved", split="test").train) == 1
    with pytest.raises(BadInput, match="no split named dev") as refused:
        make(tmp_path / "saved", split="dev")
    assert "test, train" in refused.value.next_step


def test_open_dataset_maps_rows_and_leaves_out_what_does_not_fit(tmp_path: Path) -> None:
    lines: list[Any] = [{"text": f"row {i}", "n": i} for i in range(2_000)]
    lines[1_500] = {"text": "row 1500", "n": "many"}
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in lines) + "{\n")
    rows = open_dataset(str(path), cache_dir=tmp_path / "cache")
    assert (len(rows), rows[1_500]) == (1_999, {"text": "row 1501", "n": 1501})
    assert len(open_dataset(str(path), limit=10, cache_dir=tmp_path / "cache")) == 10
    with pytest.raises(BadInput, match=r"a.jsonl:1501: does not fit the types of the first rows"):
        open_dataset(str(path), max_bad_fraction=0, cache_dir=tmp_path / "cache")

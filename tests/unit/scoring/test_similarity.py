"""Embedding similarity by a tiny encoder that is built here: its numbers, its layouts on disk, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from pydantic import ValidationError
from tests.builders.models import sentences, tokenizer_of
from tests.unit.scoring.scored_by_hand import answer_all, request, write_rows
from transformers import BertConfig, BertModel

from tuneyard.api import BadInput, ScoreTask
from tuneyard.scoring.model_folder import model_folder
from tuneyard.scoring.paired import compare
from tuneyard.scoring.similarity.encoder import SentenceEncoder

TEXTS = ["the cat", "a dog over two hills", *sentences(40)[-40:]]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of 48 positions, without any configuration of pooling."""
    folder = tmp_path_factory.mktemp("encoder")
    tokenizer_of([], eos="<|end|>", chat_template=None).save_pretrained(folder)
    torch.manual_seed(3)
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "max_position_embeddings": 48}
    model = BertModel(BertConfig(vocab_size=384, pad_token_id=1, initializer_range=0.5, **shape))
    model.save_pretrained(folder)
    return folder


def in_layout(plain: Path, folder: Path, pooling: dict[str, Any] | None, *more: str, own: str = "", **settings: Any) -> Path:
    """The encoder in the layout of sentence-transformers. `own`: folder of the transformer; `more`: types of further modules."""
    place = folder / own
    place.mkdir(parents=True, exist_ok=True)
    for file in plain.iterdir():
        (place / file.name).write_bytes(file.read_bytes())
    types = [("models.Transformer", own), *([("models.Pooling", "1_Pooling")] if pooling is not None else [])]
    types += [(f"models.{kind}", f"2_{kind}") for kind in more]
    modules = [{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.{kind}"} for i, (kind, path) in enumerate(types)]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling or {}))
    (place / "sentence_bert_config.json").write_text(json.dumps(settings))
    return folder


def by_hand(plain: Path, text: str, mode: str, longest: int = 48) -> Any:
    """The embedding of one text alone, without padding."""
    from transformers import AutoTokenizer

    ids = AutoTokenizer.from_pretrained(plain)(text)["input_ids"][:longest]
    with torch.inference_mode():
        tokens = BertModel.from_pretrained(plain).eval()(input_ids=torch.tensor([ids])).last_hidden_state[0]
    weights = torch.arange(1, len(ids) + 1).float()
    made = {
        "cls": tokens[0],
        "max": tokens.max(0).values,
        "mean": tokens.mean(0),
        "mean_sqrt_len_tokens": tokens.sum(0) / len(ids) ** 0.5,
        "weightedmean": (tokens * weights[:, None]).sum(0) / weights.sum(),
        "lasttoken": tokens[-1],
    }[mode]
    return made / made.norm()


@pytest.mark.parametrize("mode", ["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"])
@pytest.mark.parametrize("older", [True, False], ids=["flags", "name"])
def test_each_way_of_pooling_is_that_of_one_text_alone(plain: Path, tmp_path: Path, mode: str, older: bool) -> None:
    flag = f"pooling_mode_{mode}{'_token' if mode == 'cls' else '' if mode.endswith(('tokens', 'token')) else '_tokens'}"
    pooling = {"pooling_mode_mean_tokens": False, flag: True} if older else {"pooling_mode": mode}
    encoder = SentenceEncoder(in_layout(plain, tmp_path / "m", pooling, "Normalize", own="0_Transformer"))

    encoded = encoder.encode(TEXTS[:6])
    vectors, cut = encoded.vectors, encoded.cut

    assert encoder.warnings == ()
    for text, vector in zip(TEXTS[:6], vectors, strict=True):
        torch.testing.assert_close(vector, by_hand(plain, text, mode), atol=2e-6, rtol=1e-5)
    assert not any(cut[:2])


def test_several_ways_are_joined_as_the_older_flags_are_ordered(plain: Path, tmp_path: Path) -> None:
    joined = {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}

    [vector] = SentenceEncoder(in_layout(plain, tmp_path / "m", joined)).encode(["the cat"]).vectors

    assert vector.shape == (64,)
    torch.testing.assert_close(vector[:32] / vector[:32].norm(), by_hand(plain, "the cat", "cls"), atol=2e-6, rtol=1e-5)


def test_a_plain_folder_pools_by_the_mean_with_a_warning_and_long_texts_are_cut(plain: Path, tmp_path: Path) -> None:
    encoder = SentenceEncoder(plain)
    long = "cat " * 200

    encoded = encoder.encode(["the cat", long, ""])
    vectors, cut = encoded.vectors, encoded.cut
    shortest = SentenceEncoder(in_layout(plain, tmp_path / "m", {"pooling_mode": "mean"}, max_seq_length=5)).encode([long])

    assert "has no configuration of pooling" in encoder.warnings[0]
    assert (cut, shortest.cut) == ([False, True, False], [True])
    torch.testing.assert_close(vectors[1], by_hand(plain, long.strip(), "mean"), atol=2e-6, rtol=1e-5)
    torch.testing.assert_close(shortest.vectors[0], by_hand(plain, long.strip(), "mean", 5), atol=2e-6, rtol=1e-5)
    assert vectors[2].abs().sum() == 0, "no token"


def test_the_layouts_lower_case_and_default_prompt_are_followed(plain: Path, tmp_path: Path) -> None:
    folder = in_layout(plain, tmp_path / "m", {"pooling_mode": "mean"}, do_lower_case=True)
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"prompts": {"q": "A dog: "}, "default_prompt_name": "q"}))

    [vector] = SentenceEncoder(folder).encode(["  The CAT "]).vectors

    torch.testing.assert_close(vector, by_hand(plain, "a dog: the cat", "mean"), atol=2e-6, rtol=1e-5)


def test_what_is_no_encoder_or_more_than_one_is_refused(plain: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    broken = in_layout(plain, tmp_path / "broken", {"pooling_mode": "mean"})
    (broken / "modules.json").write_text("[")
    for folder, says in [
        (in_layout(plain, tmp_path / "dense", {}, "Dense"), "modules that are not known: Dense"),
        (in_layout(plain, tmp_path / "odd", {"pooling_mode": "median"}), "pools by ['median']"),
        (tmp_path / "empty", "holds no encoder"),
        (broken, "is not JSON"),
    ]:
        with pytest.raises(BadInput) as refused:
            SentenceEncoder(folder)
        assert says in refused.value.cause


def test_a_hugging_face_name_is_found_in_the_hubs_cache(plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    commit = "0" * 40
    cache = tmp_path / "hub" / "models--someone--encoder"
    (cache / "refs").mkdir(parents=True)
    (cache / "refs" / "main").write_text(commit)
    (cache / "snapshots").mkdir()
    (cache / "snapshots" / commit).symlink_to(plain)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)

    assert SentenceEncoder(model_folder("someone/encoder", tmp_path)).longest == 48
    with pytest.raises(BadInput, match="there is no folder someone/other, and the Hugging Face hub gives no model"):
        model_folder("someone/other", tmp_path)


SAYS = {1: "a dog", 2: "the red cat", 3: "", 4: "cat " * 100}


def scored(folder: Path, plain: Path, name: str, says: dict[int, str]) -> Any:
    rows = [{"prompt": f"q{i}", "answer": ["a bird", "the cat"], "n": i} for i in range(6)] + [{"prompt": "q6", "answer": None, "n": 6}]
    data = write_rows(folder / "rows.jsonl", rows)
    asked = request(folder, name, data, ["embedding_similarity"], embedding={"model": str(plain)}, rowsPerPart=4)
    return answer_all(asked, lambda row: says.get(row, "the cat"))


def test_rows_have_the_cosine_of_their_closest_reference(plain: Path, tmp_path: Path) -> None:
    result = scored(tmp_path, plain, "out", SAYS)

    rows = pq.read_table(tmp_path / "out" / "parts").to_pylist()
    bird, cat, dog = (by_hand(plain, text, "mean") for text in ("a bird", "the cat", "a dog"))
    found = [row["embedding_similarity"] for row in rows]
    assert found[0] == found[5] == 1.0
    assert found[1] == pytest.approx(max(float(dog @ bird), float(dog @ cat)), abs=2e-6)
    assert found[3] == 0.0
    assert found[6] is None
    assert result.metrics["embedding_similarity"] == pytest.approx(sum(found[:6]) / 6)
    assert result.details["embedding"] == {"model": str(plain), "cut_rows": 1}
    assert "1 rows have texts longer than the embedding model takes" in " ".join(result.warnings(100))


def test_two_models_are_compared_by_it_and_equal_answers_are_equal(plain: Path, tmp_path: Path) -> None:
    scored(tmp_path, plain, "base", {1: "a dog", 2: "a dog"})
    scored(tmp_path, plain, "tuned", {1: "a dog", 4: "a dog over two hills"})

    found = compare(str(tmp_path / "tuned"), str(tmp_path / "base"), names=("tuned", "base")).figures[-1]

    assert (found.figure, found.wins, found.ties, found.losses) == ("embedding_similarity", 1, 4, 1)


def test_values_of_two_embedding_models_are_not_compared(plain: Path, tmp_path: Path) -> None:
    scored(tmp_path, plain, "base", {})
    scored(tmp_path, in_layout(plain, tmp_path / "other", {"pooling_mode": "max"}), "tuned", {})

    with pytest.raises(BadInput, match=r"embedding_similarity by different score\.embedding"):
        compare(str(tmp_path / "tuned"), str(tmp_path / "base"), names=("tuned", "base"))


def test_another_model_of_embeddings_cannot_continue_an_output(plain: Path, tmp_path: Path) -> None:
    scored(tmp_path, plain, "out", {})
    other = in_layout(plain, tmp_path / "other", {"pooling_mode": "max"})

    with pytest.raises(BadInput, match=r"embedding\.model was"):
        scored(tmp_path, other, "out", {})


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"metrics": ["embedding_similarity"]}, r"give embedding\.model"),
        ({"embedding": {"model": "m"}, "metrics": ["exact_match"]}, "no metric uses it"),
        ({"embedding": {"model": "m"}, "judge": {"rubric": "r"}}, "no metric uses it"),
    ],
)
def test_the_metric_and_its_model_need_each_other(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        ScoreTask.model_validate({"model": {"name": "m"}, "data": {"source": "d", "reference": "answer"}} | fields)

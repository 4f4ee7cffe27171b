"""Sentence embeddings by an endpoint: batches, order, what is refused, what fails, and what it costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError
from tests.servers.openai_server import KEY, MODEL, Fault, OpenAIServer, embeddings, error_json
from tests.unit.scoring.endpoint.test_engine import FastClock
from tests.unit.scoring.scored_by_hand import answer_all, request, write_rows

from tuneyard.api import BadInput, Endpoint, JobFailed, ScoreTask
from tuneyard.scoring.similarity.encoded import Encoded
from tuneyard.scoring.similarity.endpoint_encoder import EndpointEncoder

TEXTS = [f"text number {number}" for number in range(70)]


def encoded(server: OpenAIServer, texts: list[str], **fields: Any) -> Encoded:
    endpoint = Endpoint.model_validate({"url": server.url, "model": MODEL, "patience": "20h", **fields})
    return EndpointEncoder(endpoint, key=KEY, clock=FastClock()).encode(texts)


def by_hand(text: str) -> Any:
    vector = np.array(embeddings({"input": text, "model": ""})["data"][0]["embedding"])
    return vector / np.linalg.norm(vector)


def test_each_text_has_its_embedding_whatever_the_order_of_batches_and_replies() -> None:
    with OpenAIServer() as server:
        found = encoded(server, [*TEXTS, "  text number 3\n"])

    assert [len(body["input"]) for body in sorted(server.asked, key=lambda body: -len(body["input"]))] == [32, 32, 6]
    for text, vector in zip([*TEXTS, "text number 3"], found.vectors, strict=True):
        np.testing.assert_allclose(vector, by_hand(text), atol=1e-12)
    assert (found.paid.input_tokens, found.paid.output_tokens, found.paid.unknown) == (3 * len(TEXTS), 0, 0)
    assert {header["Authorization"] for header in server.headers} == {f"Bearer {KEY}"}


def test_an_empty_text_has_no_length_and_is_not_sent() -> None:
    with OpenAIServer() as server:
        found = encoded(server, ["", " \n", "a"])

    assert [body["input"] for body in server.asked] == [["a"]]
    assert np.linalg.norm(found.vectors, axis=1).tolist() == [0.0, 0.0, 1.0]
    assert found.errors == {}


def test_a_refused_text_is_the_error_of_its_rows_alone() -> None:
    said = Fault(400, error_json("this text is too long"))
    with OpenAIServer(lambda body, _: said if "text number 7" in body["input"] else None) as server:
        found = encoded(server, TEXTS[:40])

    assert found.errors == {7: "the embedding endpoint: HTTP 400: this text is too long"}
    np.testing.assert_allclose(found.vectors[8], by_hand(TEXTS[8]), atol=1e-12)


@pytest.mark.parametrize(
    "reply",
    [
        Fault(503, "busy"),
        Fault(200, "not JSON"),
        Fault(200, json.dumps({"data": []})),
        Fault(200, json.dumps({"data": [{"index": 0, "embedding": [float("nan")]}, {"index": 1, "embedding": [1.0]}]})),
        Fault(200, json.dumps({"data": [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [1.0, 2.0]}]})),
        Fault(200, json.dumps({"data": [{"index": 0, "embedding": "AAAA"}, {"index": 1, "embedding": "AAAA"}]})),
        *(
            Fault(200, json.dumps({"data": [{"index": first, "embedding": [1.0]}, {"index": second, "embedding": [2.0]}]}))
            for first, second in ((0, 0), (1, 2), (-1, 0), (0.2, 1))
        ),
        Fault(reset=True),
    ],
)
def test_what_is_no_embedding_is_asked_for_again(reply: Fault) -> None:
    with OpenAIServer(lambda _, number: reply if number == 0 else None) as server:
        found = encoded(server, ["one", "two"])

    assert len(server.asked) == 2
    assert found.errors == {}
    np.testing.assert_allclose(found.vectors[0], by_hand("one"), atol=1e-12)


def replied(*vectors: list[float]) -> Fault:
    return Fault(200, json.dumps({"data": [{"index": index, "embedding": vector} for index, vector in enumerate(vectors)]}))


def test_embeddings_of_two_widths_fail_the_task_and_name_the_endpoint_and_both() -> None:
    def wider(body: Any, number: int) -> Fault:
        return replied(*[[1.0] * (5 + number)] * len(body["input"]))

    with (
        OpenAIServer(wider) as server,
        pytest.raises(JobFailed, match=rf"endpoint {server.url} gave embeddings of \d numbers, and later of \d") as failed,
    ):
        encoded(server, TEXTS, atOnce=1)
    assert "embedding.endpoint" in failed.value.next_step


def test_a_vector_of_zeros_is_the_error_of_its_text() -> None:
    with OpenAIServer(lambda *_: replied([0.0, 0.0], [3.0, 4.0])) as server:
        found = encoded(server, ["", "one", "two"])
    assert found.errors == {1: "the embedding endpoint gave a vector of zeros, which has no cosine with another"}
    assert found.vectors[2].tolist() == [0.6, 0.8]


@pytest.mark.parametrize("size", [1e200, 1e-200, 1e308, 5e-324])
def test_huge_and_tiny_embeddings_have_a_direction(size: float) -> None:
    with OpenAIServer(lambda *_: replied([size, 0.0], [0.0, -size])) as server:
        found = encoded(server, ["one", "two"])
    assert (found.vectors.tolist(), found.errors) == ([[1.0, 0.0], [0.0, -1.0]], {})


def test_a_wrong_key_fails_the_task_and_names_the_field() -> None:
    with OpenAIServer(key="another") as server, pytest.raises(JobFailed, match=r"the embedding endpoint .* refuses all requests") as failed:
        encoded(server, ["one"])

    assert "embedding.endpoint.apiKeyVariable" in failed.value.next_step
    assert KEY not in str(failed.value)


def test_body_adds_fields_and_the_limit_of_requests_holds() -> None:
    with OpenAIServer() as server:
        encoded(server, TEXTS, body={"dimensions": 8}, atOnce=1)

    assert {body["dimensions"] for body in server.asked} == {8}
    assert server.most_at_once == 1


def scored(folder: Path, server: OpenAIServer, name: str = "out", **changes: Any) -> Any:
    rows = [{"prompt": f"q{row}", "answer": ["abc", "xyz"]} for row in range(9)]
    endpoint = {"url": server.url, "model": MODEL, "price": {"input": 1000, "output": 0}, **changes}
    data = write_rows(folder / "rows.jsonl", rows)
    asked = request(folder, name, data, ["embedding_similarity"], embedding={"endpoint": endpoint}, rowsPerPart=4)
    return answer_all(asked, lambda row: {0: "cba", 1: "abx", 2: ""}.get(row, "abc"))


def test_rows_are_measured_and_the_tokens_have_a_cost(tmp_path: Path) -> None:
    with OpenAIServer(key=None) as server:
        result = scored(tmp_path, server)

    values = pq.read_table(tmp_path / "out" / "parts")["embedding_similarity"].to_pylist()
    assert values == [1.0, pytest.approx(2 / 3, abs=1e-6), 0.0, *[1.0] * 6]
    tokens = 4 + 2 + 2  # of the three parts: each text once
    assert result.details["embedding"]["paid_tokens"] == tokens
    assert result.details["embedding"]["cost"] == result.cost == pytest.approx(tokens * 1000 / 1e6)
    assert result.embedding_cost == result.cost
    assert result.cost_per_1000_rows == pytest.approx(result.cost / 9 * 1000)


def test_another_model_at_the_endpoint_cannot_continue_an_output(tmp_path: Path) -> None:
    with OpenAIServer(key=None) as server:
        scored(tmp_path, server)
        with pytest.raises(BadInput, match=r"embedding\.endpoint\.model was"):
            scored(tmp_path, server, model="another")


@pytest.mark.parametrize(
    "embedding",
    [
        {},
        {"model": "m", "endpoint": {"url": "https://api.example.com/v1", "model": "small"}},
        {"revision": "r", "endpoint": {"url": "https://api.example.com/v1", "model": "small"}},
    ],
)
def test_embeddings_have_one_model(embedding: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=r"not both, and not neither|leave revision out"):
        ScoreTask.model_validate(
            {
                "model": {"name": "m"},
                "data": {"source": "d", "reference": "answer"},
                "metrics": ["embedding_similarity"],
                "embedding": embedding,
            }
        )

"""No secret's value reaches what people and machines read."""

from __future__ import annotations

import pytest

from tuneyard.api.secrets import HIDDEN, is_secret_name, redact, redact_fields


@pytest.mark.parametrize("name", ["HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "COMET_API_KEY", "DB_PASSWORD", "token", "githubPrivateKey"])
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["maxTokens", "tokenizer", "tokens_per_s", "key", "PATH", "OMP_NUM_THREADS"])
def test_names_of_other_things(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://AKIA:secret@bucket/x failed", "s3://***@bucket/x failed"),
        ("GET https://b/x?X-Amz-Signature=abcdef&part=1", "GET https://b/x?X-Amz-Signature=***&part=1"),
        ("hf auth login --token hf_abcdef", "hf auth login --token ***"),
        ("hf auth login --token $HF_TOKEN", "hf auth login --token $HF_TOKEN"),
        ("the value is very-secret-1", "the value is ***"),
        ("train --tokenizer x", "train --tokenizer x"),
    ],
)
def test_redact(text: str, shown: str) -> None:
    assert redact(text, {"MY_TOKEN": "very-secret-1", "HOME": "/root/home"}) == shown


def test_fields_of_a_job_keep_everything_but_secrets() -> None:
    job = {
        "env": [{"name": "HF_TOKEN", "value": "hf_1234567"}, {"name": "MODE", "value": "fast"}],
        "secretKeyRef": {"name": "hf", "key": "token"},
        "password": "open sesame",
        "tasks": [{"maxTokens": 700}],
    }

    assert redact_fields(job) == {
        "env": [{"name": "HF_TOKEN", "value": HIDDEN}, {"name": "MODE", "value": "fast"}],
        "secretKeyRef": {"name": "hf", "key": "token"},
        "password": HIDDEN,
        "tasks": [{"maxTokens": 700}],
    }


def test_the_name_of_a_variable_is_no_secret() -> None:
    endpoint = {"apiKeyVariable": "MY_KEY", "apiKey": "sk-123456"}
    assert redact_fields({"endpoint": endpoint}) == {"endpoint": {"apiKeyVariable": "MY_KEY", "apiKey": HIDDEN}}


def test_a_long_text_is_read_once() -> None:
    for text in ("x" * 200_000, "-" * 200_000, "--x" * 10_000, "a+" * 100_000, "?x-amz-" * 100_000, "a://" * 100_000):
        assert redact(text) == text

"""`tuneyard serve` with two adapters that a job has trained, and their base, on one engine: what clients get, and its end."""

from __future__ import annotations

import http.client
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from tests.builders.models import sentences, write_chats, write_model

from tuneyard.cli import main
from tuneyard.data.visible import visible

TUNEYARD = str(Path(sys.executable).with_name("tuneyard"))
PROMPTS = [*sentences(6), "Größe? 你好"]
TOKENS = 12
STARTS_WITHIN_S = 600


@dataclass
class Server:
    """A running `tuneyard serve`. `told`: its stderr up to now."""

    process: subprocess.Popen[str]
    url: str
    told: list[str] = field(default_factory=list)
    key: str = "none"

    def client(self) -> Any:
        from openai import OpenAI

        return OpenAI(base_url=self.url, api_key=self.key, max_retries=0, timeout=300)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of a job with two LoRA tasks on one base: `chats` was trained on chats, `plain` on plain text of a template."""
    folder = tmp_path_factory.mktemp("served")
    write_model(folder / "base", hidden_size=128, num_attention_heads=2, num_key_value_heads=1)
    write_chats(folder / "chats.jsonl")
    pairs = [{"prompt": text + " ", "completion": text.upper()} for text in sentences(48)]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    common = {
        "model": {"name": "./base"},
        "method": {"lora": {"rank": 4}},
        "optimizer": {"learningRate": 0.02},
        "batch": {"global": 8},
        "steps": 16,
    }
    tasks = [
        {"name": "chats", "train": {**common, "data": {"source": "chats.jsonl", "maxLength": 64}}, "resources": {"workers": 1}},
        {
            "name": "plain",
            "train": {**common, "data": {"source": "pairs.jsonl", "maxLength": 64, "chat": False, "template": "Shout: {prompt}\n"}},
            "resources": {"workers": 1},
        },
    ]
    job = {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": "served"}, "spec": {"tasks": tasks}}
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    ran = subprocess.run(
        [TUNEYARD, "run", str(folder / "job.yaml"), "--out", str(folder / "out")],
        capture_output=True,
        text=True,
        env={**os.environ, "TUNEYARD_HISTORY": "off"},
        timeout=900,
    )
    assert ran.returncode == 0, ran.stderr
    assert f"tuneyard chat {folder / 'out'}" in ran.stderr
    assert f"tuneyard serve {folder / 'out'}" in ran.stderr
    return folder / "out"


@contextmanager
def serving(*words: str) -> Iterator[Server]:
    command = [TUNEYARD, "serve", *words, "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    told: list[str] = []
    threading.Thread(target=lambda: told.extend(process.stderr or ()), daemon=True).start()
    limit = threading.Timer(STARTS_WITHIN_S, process.kill)
    limit.start()
    line = process.stdout.readline()
    limit.cancel()
    assert line.startswith("serving: http://127.0.0.1:"), "".join(told)
    yield Server(process, line.split()[1], told)
    process.kill()
    process.wait()


@pytest.fixture(scope="module")
def server(out: Path) -> Iterator[Server]:
    with serving(f"{out}/chats", f"{out}/plain", "--name", "chatty") as one:
        yield one


def generated(model: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What `tuneyard generate` prints for all prompts."""
    assert main(["generate", str(model), *PROMPTS, "--max-tokens", str(TOKENS)]) == 0
    return capsys.readouterr().out


def printed(answers: list[str], expected: str) -> bool:
    """Whether `tuneyard generate` prints these answers. A character of several tokens that `max_tokens` has cut is in no answer of vLLM."""
    return "".join(f"{visible(answer)}\n" for answer in answers) == re.sub("\ufffd+\n", "\n", expected)


def chatted(server: Server, model: str) -> list[str]:
    client = server.client()
    asked = ({"role": "user", "content": prompt} for prompt in PROMPTS)
    made = [client.chat.completions.create(model=model, messages=[each], max_tokens=TOKENS, temperature=0) for each in asked]
    return [each.choices[0].message.content or "" for each in made]


def test_clients_get_the_answers_of_generate_token_for_token(server: Server, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the base, of an adapter by chats, and of an adapter by completions."""
    client = server.client()
    assert [model.id for model in client.models.list()] == ["base", "chatty", "plain"]
    how: dict[str, Any] = {"model": "plain", "max_tokens": TOKENS, "temperature": 0}
    completed = [client.completions.create(prompt="", extra_body={"columns": {"prompt": each}}, **how) for each in PROMPTS]
    whole = client.completions.create(prompt=f"Shout: {PROMPTS[0]}\n", **how)

    tuned, base, plain = chatted(server, "chatty"), chatted(server, "base"), [each.choices[0].text for each in completed]

    assert printed(tuned, generated(out / "chats", capsys))
    assert printed(base, generated(out.parent / "base", capsys))
    assert printed(plain, generated(out / "plain", capsys))
    assert whole.choices[0].text == plain[0], "a request may send the whole prompt"
    assert tuned != base, "the adapter changes answers"


def test_the_curl_line_that_it_prints_works(server: Server) -> None:
    [line] = [line for line in server.told if line.startswith("ask: ")]
    made = subprocess.run(shlex.split(line.removeprefix("ask: ")), capture_output=True, text=True, timeout=300)
    reply = json.loads(made.stdout)
    assert (reply["model"], reply["choices"][0]["message"]["role"]) == ("chatty", "assistant")


def test_chats_of_a_plain_model_and_other_paths_are_refused(server: Server) -> None:
    from openai import BadRequestError, NotFoundError

    with pytest.raises(BadRequestError, match="plain takes no chats: it was trained on plain prompts"):
        chatted(server, "plain")
    with pytest.raises(NotFoundError, match="unknown"):
        chatted(server, "unknown")
    with pytest.raises(NotFoundError, match="this server answers"):
        server.client().responses.create(model="chatty", input="hello")


def test_a_chat_asks_the_server_turn_by_turn(server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    tuned, base = chatted(server, "chatty")[0], chatted(server, "base")[0]
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{PROMPTS[0]}\n/base\n/reset\n{PROMPTS[0]}\n"))

    assert main(["chat", "--url", server.url, "chatty", "--max-tokens", str(TOKENS)]) == 0

    assert capsys.readouterr().out == f"{tuned}\n{base}\n"
    assert main(["chat", "--url", server.url, "nobody"]) == 2
    assert "give one of these: base, chatty, plain" in capsys.readouterr().err


def refused_by_its_headers(url: str) -> int:
    """The status of the answer to a request without a key that announces a terabyte, and sends nothing of it."""
    asked = http.client.HTTPConnection(url.split("/")[2], timeout=300)
    asked.putrequest("POST", "/v1/chat/completions")
    asked.putheader("Content-Length", str(2**40))
    asked.endheaders()
    with closing(asked):
        return asked.getresponse().status


def test_a_serve_task_serves_what_its_job_has_trained_until_nobody_asks(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from openai import AuthenticationError

    job = yaml.safe_load((out.parent / "job.yaml").read_text())
    serve = {"models": [{"from": "chats", "servedAs": "chatty"}, {"name": f"{out}/plain"}], "idle": 20}
    job["spec"]["tasks"].append({"name": "serve", "serve": serve})
    job["spec"]["env"] = [{"name": "TUNEYARD_API_KEY", "valueFrom": {"secretKeyRef": {"name": "bot", "key": "BOT_KEY"}}}]
    (out.parent / "served.yaml").write_text(yaml.safe_dump(job))
    environment = {**os.environ, "BOT_KEY": "sk-of-the-bot", "TUNEYARD_HISTORY": "off"}
    command = [TUNEYARD, "run", str(out.parent / "served.yaml"), "--out", str(out), "--resume"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as run:
        limit = threading.Timer(STARTS_WITHIN_S, run.kill)
        limit.daemon = True
        limit.start()
        assert run.stderr is not None
        told = []
        for line in run.stderr:
            told.append(line)
            if found := re.search(r"serving at (http://127\.0\.0\.1:\d+/v1)", line):
                server = Server(run, found[1], key="sk-of-the-bot")
                assert [model.id for model in server.client().models.list()] == ["base", "chatty", "plain"]
                answers = chatted(server, "chatty")
                with pytest.raises(AuthenticationError):
                    chatted(Server(run, found[1]), "chatty")
                assert refused_by_its_headers(found[1]) == 401
        limit.cancel()

    assert run.wait() == 1, told
    assert printed(answers, generated(out / "chats", capsys))
    assert "no request for 20 s" in "".join(told)
    assert "sk-of-the-bot" not in "".join(file.read_text(errors="replace") for file in (out / "logs").rglob("*.log"))


@pytest.mark.long
def test_two_servers_of_one_adapter_do_not_know_each_other(server: Server, out: Path) -> None:
    """In `make test`: a port in use is refused (`test_a_port_in_use_is_named_with_a_free_one`)."""
    expected = chatted(server, "chatty")
    with serving(f"{out}/chats", "--name", "chatty") as second:
        assert second.url != server.url
        assert chatted(second, "chatty") == expected
    assert chatted(server, "chatty") == expected


def test_sigterm_leaves_no_process(server: Server) -> None:
    """The last test: it ends the server of this file."""
    started = psutil.Process(server.process.pid).children(recursive=True)
    assert len(started) >= 2, "the server, and its engine"

    server.process.send_signal(signal.SIGTERM)

    assert server.process.wait(timeout=300) == 0
    _, alive = psutil.wait_procs(started, timeout=60)
    assert not alive

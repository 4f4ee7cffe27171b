"""Files that were written after the forms were built, to measure what happens to files that nobody had in mind."""

from __future__ import annotations

from benchmarks.real_exports.case import Case, answer, chat, completion, document, lines, pair
from benchmarks.real_exports.workbooks import xlsx


def _turn(role: str, text: str) -> dict[str, str]:
    return {"role": role, "content": text}


CASES = [
    Case(
        "Azure OpenAI log",
        "azure.jsonl",
        lines(
            lambda i: {
                "operation": "chat",
                "requestBody": {"messages": [_turn("user", f"q{i}")]},
                "responseBody": {"choices": [{"message": _turn("assistant", f"a{i}")}]},
            }
        ),
        answer(["user: q0"], "a0"),
    ),
    Case(
        "Ollama chats",
        "ollama.jsonl",
        lines(lambda i: {"model": "m", "messages": [_turn("user", f"q{i}")], "message": _turn("assistant", f"a{i}"), "done": True}),
        None,
        ("message",),
    ),
    Case(
        "vLLM benchmark prompts",
        "vllm.jsonl",
        lines(lambda i: {"prompt": f"q{i}", "output_tokens": 10 + i}),
        None,
        ("prompt", "output_tokens"),
    ),
    Case(
        "Gradio history",
        "gradio.jsonl",
        lines(lambda i: {"chat": [[f"q{i}", f"a{i}"], ["more", "b"]]}),
        chat("user: q0", "assistant: a0", "user: more", "assistant: b"),
    ),
    Case(
        "Chatbot logs with sender and text",
        "bot.json",
        document([{"session": i, "dialogue": [{"sender": "user", "text": f"q{i}"}, {"sender": "bot", "text": f"a{i}"}]} for i in range(6)]),
        chat("user: q0", "assistant: a0"),
    ),
    Case(
        "tickets by customer and agent",
        "tickets.jsonl",
        lines(lambda i: {"messages": [{"speaker": "customer", "text": f"q{i}"}, {"speaker": "agent", "text": f"a{i}"}]}),
        None,
        ("customer", "agent", "data.roles"),
    ),
    Case("German columns", "faq.csv", b"Frage;Antwort\nq0;a0\nq1;a1\n", None, ("Frage", "Antwort")),
    Case("short names of columns", "qa.csv", b"q,a\nq0,a0\nq1,a1\n", None, ("q, a",)),
    Case("Quora pairs", "quora.csv", b"qid1,question1,question2,is_duplicate\n1,q0,r0,1\n2,q1,r1,0\n", None, ("question1", "is_duplicate")),
    Case("AG News", "ag.csv", b"text,label\nnews0,2\nnews1,3\n", "«news0»", ("label",)),
    Case("IMDB with names", "imdb.csv", b"review,sentiment\nr0,positive\nr1,negative\n", None, ("review", "sentiment")),
    Case(
        "SciQ",
        "sciq.jsonl",
        lines(lambda i: {"question": f"q{i}", "distractor1": "x", "distractor2": "y", "correct_answer": f"a{i}", "support": f"s{i}"}),
        None,
        ("correct_answer", "distractor1"),
    ),
    Case(
        "TruthfulQA",
        "truthful.jsonl",
        lines(lambda i: {"question": f"q{i}", "best_answer": f"a{i}", "correct_answers": [f"a{i}"], "incorrect_answers": ["x"]}),
        None,
        ("best_answer",),
    ),
    Case(
        "GPQA",
        "gpqa.csv",
        b"Question,Correct Answer,Incorrect Answer 1\nq0,a0,x\nq1,a1,y\n",
        None,
        ("Correct Answer",),
    ),
    Case(
        "LogiQA",
        "logiqa.jsonl",
        lines(lambda i: {"context": f"c{i}", "query": f"q{i}", "options": ["a", "b"], "correct_option": 1}),
        None,
        ("correct_option",),
    ),
    Case(
        "Natural Instructions",
        "natural.json",
        document({"Definition": ["d"], "Instances": [{"id": f"{i}", "input": f"q{i}", "output": [f"a{i}"]} for i in range(6)]}, indent=1),
        None,
        ("output",),
    ),
    Case(
        "P3",
        "p3.jsonl",
        lines(lambda i: {"inputs_pretokenized": f"q{i}", "targets_pretokenized": f"a{i}"}),
        None,
        ("inputs_pretokenized", "targets_pretokenized"),
    ),
    Case(
        "FLAN", "flan.jsonl", lines(lambda i: {"inputs": f"q{i}", "targets": f"a{i}", "task": f"t{i}"}), completion("q0", "a0"), ("task",)
    ),
    Case("xP3", "xp3.jsonl", lines(lambda i: {"inputs": f"q{i}", "targets": f"a{i}"}), completion("q0", "a0")),
    Case(
        "Magpie",
        "magpie.jsonl",
        lines(
            lambda i: {
                "uuid": f"{i}",
                "instruction": f"q{i}",
                "response": f"a{i}",
                "conversations": [{"from": "human", "value": f"q{i}"}, {"from": "gpt", "value": f"a{i}"}],
            }
        ),
        chat("user: q0", "assistant: a0"),
        ("instruction",),
    ),
    Case(
        "DPO with scores",
        "orca_dpo.jsonl",
        lines(lambda i: {"system": "s", "question": f"q{i}", "chosen": "good", "rejected": "bad", "chosen_score": i}),
        pair("q0", "good", "bad"),
        ("system", "chosen_score"),
    ),
    Case(
        "reward data with two conversations",
        "reward.jsonl",
        lines(
            lambda i: {
                "chosen": [_turn("user", f"q{i}"), _turn("assistant", "good")],
                "rejected": [_turn("user", f"q{i}"), _turn("assistant", "bad")],
                "prompt": None,
            }
        ),
        pair("user: q0", "assistant: good", "assistant: bad"),
    ),
    Case(
        "audio transcripts",
        "audio.jsonl",
        lines(lambda i: {"audio_filepath": f"{i}.wav", "duration": i, "text": f"t{i}"}),
        "«t0»",
        ("audio_filepath",),
    ),
    Case(
        "BigQuery export",
        "bigquery.json",
        lines(lambda i: {"question": f"q{i}", "answer": f"a{i}", "created": {"value": f"2026-01-0{i + 1}"}}),
        completion("q0", "a0"),
        ("created",),
    ),
    Case(
        "MongoDB export",
        "mongo.json",
        document([{"_id": {"$oid": f"{i}"}, "prompt": f"q{i}", "response": f"a{i}"} for i in range(6)]),
        completion("q0", "a0"),
        ("_id",),
    ),
    Case(
        "Firebase export",
        "firebase.json",
        document({"chats": {f"k{i}": {"question": f"q{i}", "answer": f"a{i}"} for i in range(6)}}),
        None,
        ("chats.k0",),
    ),
    Case(
        "a Google Sheet with a frozen title",
        "sheet.xlsx",
        xlsx({"Sheet1": [["FAQ", None], ["question", "answer"], ["q0", "a0"]]}),
        None,
        ("row 1", "FAQ"),
    ),
    Case("a survey with one column", "survey.xlsx", xlsx({"Sheet1": [["answer"], ["a0"], ["a1"]]}), None, ("answer",)),
    Case(
        "Jupyter notebook", "work.ipynb", document({"cells": [{"cell_type": "code", "source": ["x"]}], "nbformat": 4}), None, ("cell_type",)
    ),
    Case("subtitles", "film.srt", b"1\n00:00:01,000 --> 00:00:02,000\nHello\n", None, ("type is unknown",)),
]

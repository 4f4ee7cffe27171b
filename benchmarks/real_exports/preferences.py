"""Preferences and judged answers."""

from __future__ import annotations

from benchmarks.real_exports.case import Case, chat, lines, pair

CASES = [
    Case(
        "OpenAI preferences",
        "openai_dpo.jsonl",
        lines(
            lambda i: {
                "input": {"messages": [{"role": "user", "content": f"q{i}"}], "tools": [], "parallel_tool_calls": True},
                "preferred_output": [{"role": "assistant", "content": f"good {i}"}],
                "non_preferred_output": [{"role": "assistant", "content": f"bad {i}"}],
            }
        ),
        pair("user: q0", "assistant: good 0", "assistant: bad 0"),
    ),
    Case(
        "LLaMA-Factory preferences",
        "lf_dpo.jsonl",
        lines(
            lambda i: {
                "conversations": [{"from": "human", "value": f"q{i}"}],
                "chosen": {"from": "gpt", "value": f"good {i}"},
                "rejected": {"from": "gpt", "value": f"bad {i}"},
            }
        ),
        pair("user: q0", "assistant: good 0", "assistant: bad 0"),
    ),
    Case(
        "messages, and answers as texts",
        "messages_pairs.jsonl",
        lines(lambda i: {"messages": [{"role": "user", "content": f"q{i}"}], "chosen": f"good {i}", "rejected": f"bad {i}"}),
        pair("user: q0", "assistant: good 0", "assistant: bad 0"),
    ),
    Case(
        "whole messages, and answers as texts",
        "two.jsonl",
        lines(
            lambda i: {
                "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": f"hello {i}"}],
                "chosen": f"x{i}",
                "rejected": f"y{i}",
            }
        ),
        None,
        ("messages", "ends with a turn of the assistant"),
    ),
    Case(
        "Alpaca preferences with an input",
        "alpaca_dpo.jsonl",
        lines(lambda i: {"instruction": "Add", "input": f"{i} 2", "chosen": f"good {i}", "rejected": f"bad {i}"}),
        pair("Add\n\n0 2", "good 0", "bad 0"),
    ),
    Case(
        "KTO on chats",
        "kto_chat.jsonl",
        lines(
            lambda i: {
                "messages": [{"role": "user", "content": f"q{i}"}, {"role": "assistant", "content": f"a{i}"}],
                "label": i % 2 == 1,
            }
        ),
        chat("user: q1", "assistant: a1"),
    ),
    Case(
        "UltraFeedback's scores",
        "ultrafeedback.jsonl",
        lines(
            lambda i: {
                "source": "x",
                "instruction": f"q{i}",
                "completions": [{"response": f"bad {i}", "overall_score": 3.0}, {"response": f"good {i}", "overall_score": 8.5}],
            }
        ),
        pair("q0", "good 0", "bad 0"),
    ),
    Case(
        "Nectar's ranks",
        "nectar.jsonl",
        lines(lambda i: {"prompt": f"q{i}", "answers": [{"answer": f"bad {i}", "rank": 7.0}, {"answer": f"good {i}", "rank": 1.0}]}),
        pair("q0", "good 0", "bad 0"),
    ),
    Case(
        "PKU-SafeRLHF's verdict",
        "saferlhf.jsonl",
        lines(lambda i: {"prompt": f"q{i}", "response_0": f"bad {i}", "response_1": f"good {i}", "better_response_id": 1}),
        pair("q0", "good 0", "bad 0"),
    ),
    Case(
        "Chatbot Arena's winner",
        "arena.jsonl",
        lines(
            lambda i: {
                "question_id": f"{i}",
                "winner": "model_b",
                "conversation_a": [{"role": "user", "content": f"q{i}"}, {"role": "assistant", "content": f"bad {i}"}],
                "conversation_b": [{"role": "user", "content": f"q{i}"}, {"role": "assistant", "content": f"good {i}"}],
            }
        ),
        pair("user: q0", "assistant: good 0", "assistant: bad 0"),
    ),
    Case(
        "Stack Exchange pairs",
        "stack.jsonl",
        lines(lambda i: {"qid": i, "question": f"q{i}", "response_j": f"good {i}", "response_k": f"bad {i}"}),
        pair("q0", "good 0", "bad 0"),
    ),
    Case(
        "Stanford SHP",
        "shp.jsonl",
        lines(lambda i: {"history": f"q{i}", "human_ref_A": f"bad {i}", "human_ref_B": f"good {i}", "labels": 0}),
        pair("q0", "good 0", "bad 0"),
    ),
    Case(
        "Anthropic HH, whole dialogues",
        "hh.jsonl",
        lines(lambda i: {"chosen": f"\n\nHuman: q{i}\n\nAssistant: good", "rejected": f"\n\nHuman: q{i}\n\nAssistant: bad"}),
        pair("\n\nHuman: q0\n\nAssistant:", " good", " bad"),
    ),
]

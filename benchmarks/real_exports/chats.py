"""Chats, as APIs, tuning services and chat windows write them."""

from __future__ import annotations

from benchmarks.real_exports.case import Case, answer, chat, document, lines


def _text(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]


def _chatgpt(i: int) -> dict[str, object]:
    def node(role: str, text: str, parent: str | None, children: list[str]) -> dict[str, object]:
        said = {"author": {"role": role}, "content": {"content_type": "text", "parts": [text]}}
        return {"message": said, "parent": parent, "children": children}

    nodes = {
        "root": {"message": None, "parent": None, "children": ["u"]},
        "u": node("user", f"q{i}", "root", ["old", "new"]),
        "old": node("assistant", f"worse {i}", "u", []),
        "new": node("assistant", f"a{i}", "u", []),
    }
    return {"title": f"t{i}", "mapping": nodes, "current_node": "new"}


_CALL = 'w({"city": "Graz"})'
_ASKED = chat("user: rain?", f"assistant: let me see {_CALL}", "tool: yes", "assistant: a0")
CASES = [
    Case(
        "OpenAI batch input",
        "batch_in.jsonl",
        lines(lambda i: {"custom_id": f"r{i}", "url": "/v1/x", "body": {"model": "m", "messages": [{"role": "user", "content": f"q{i}"}]}}),
        "user: q0",
        prompt="body.messages",
    ),
    Case(
        "OpenAI batch output",
        "batch_out.jsonl",
        lines(
            lambda i: {
                "custom_id": f"r{i}",
                "response": {"status_code": 200, "body": {"choices": [{"message": {"role": "assistant", "content": f"a{i}"}}]}},
                "error": None,
            }
        ),
        None,
        ("answers", "custom_id"),
    ),
    Case(
        "OpenAI Evals samples",
        "evals.jsonl",
        lines(lambda i: {"input": [{"role": "system", "content": "s"}, {"role": "user", "content": f"q{i}"}], "ideal": f"a{i}"}),
        answer(["system: s", "user: q0"], "a0"),
    ),
    Case(
        "OpenAI Responses",
        "responses.jsonl",
        lines(
            lambda i: {
                "instructions": "be kind",
                "input": f"q{i}",
                "output": [
                    {"type": "reasoning", "summary": []},
                    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": f"a{i}"}]},
                ],
            }
        ),
        answer(["system: be kind", "user: q0"], "a0"),
    ),
    Case(
        "OpenAI Responses with a function",
        "responses_tools.jsonl",
        lines(
            lambda _: {
                "input": [{"role": "user", "content": "rain?"}],
                "output": [{"type": "function_call", "call_id": "c", "name": "w", "arguments": '{"city": "Graz"}'}],
            }
        ),
        answer(["user: rain?"], _CALL),
    ),
    Case(
        "LiteLLM log of requests",
        "litellm.jsonl",
        lines(
            lambda i: {
                "request": {"model": "m", "messages": [{"role": "user", "content": f"q{i}"}]},
                "response": {"choices": [{"message": {"role": "assistant", "content": f"a{i}"}}]},
            }
        ),
        answer(["user: q0"], "a0"),
    ),
    Case("ChatGPT account export", "conversations.json", document([_chatgpt(i) for i in range(6)]), chat("user: q0", "assistant: a0")),
    Case(
        "Claude account export",
        "claude.json",
        document(
            [
                {
                    "uuid": f"u{i}",
                    "name": f"n{i}",
                    "chat_messages": [{"sender": "human", "text": f"q{i}"}, {"sender": "assistant", "text": f"a{i}"}],
                }
                for i in range(6)
            ]
        ),
        chat("user: q0", "assistant: a0"),
    ),
    Case(
        "Anthropic messages, system as parts",
        "anthropic.jsonl",
        lines(
            lambda i: {
                "system": [{"type": "text", "text": f"pirate {i}", "cache_control": {"type": "ephemeral"}}],
                "messages": [{"role": "user", "content": f"q{i}"}, {"role": "assistant", "content": _text(f"a{i}")}],
            }
        ),
        chat("system: pirate 0", "user: q0", "assistant: a0"),
    ),
    Case(
        "Anthropic tools",
        "anthropic_tools.jsonl",
        lines(
            lambda i: {
                "messages": [
                    {"role": "user", "content": "rain?"},
                    {
                        "role": "assistant",
                        "content": [*_text("let me see"), {"type": "tool_use", "id": "t1", "name": "w", "input": {"city": "Graz"}}],
                    },
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "yes"}]},
                    {"role": "assistant", "content": f"a{i}"},
                ]
            }
        ),
        _ASKED,
    ),
    Case(
        "Gemini contents",
        "gemini.jsonl",
        lines(
            lambda i: {
                "systemInstruction": {"role": "system", "parts": [{"text": "be kind"}]},
                "contents": [{"role": "user", "parts": [{"text": f"q{i}"}]}, {"role": "model", "parts": [{"text": f"a{i}"}]}],
            }
        ),
        chat("system: be kind", "user: q0", "assistant: a0"),
    ),
    Case(
        "Gemini function calls",
        "gemini_tools.jsonl",
        lines(
            lambda i: {
                "contents": [
                    {"role": "user", "parts": [{"text": "rain?"}]},
                    {"role": "model", "parts": [{"text": "let me see"}, {"functionCall": {"name": "w", "args": {"city": "Graz"}}}]},
                    {"role": "function", "parts": [{"functionResponse": {"name": "w", "response": {"rain": "yes"}}}]},
                    {"role": "model", "parts": [{"text": f"a{i}"}]},
                ]
            }
        ),
        chat("user: rain?", f"assistant: let me see {_CALL}", 'tool: {"rain": "yes"}', "assistant: a0"),
    ),
    Case(
        "Vertex chat-bison",
        "bison.jsonl",
        lines(
            lambda i: {
                "context": f"be kind {i}",
                "messages": [{"author": "user", "content": f"q{i}"}, {"author": "bot", "content": f"a{i}"}],
            }
        ),
        chat("system: be kind 0", "user: q0", "assistant: a0"),
    ),
    Case(
        "Bedrock conversation",
        "bedrock.jsonl",
        lines(
            lambda i: {
                "schemaVersion": "bedrock-conversation-2024",
                "system": [{"text": "be kind"}],
                "messages": [{"role": "user", "content": [{"text": f"q{i}"}]}, {"role": "assistant", "content": [{"text": f"a{i}"}]}],
            }
        ),
        chat("system: be kind", "user: q0", "assistant: a0"),
    ),
    Case(
        "Bedrock tools",
        "bedrock_tools.jsonl",
        lines(
            lambda i: {
                "messages": [
                    {"role": "user", "content": [{"text": "rain?"}]},
                    {
                        "role": "assistant",
                        "content": [{"text": "let me see"}, {"toolUse": {"toolUseId": "t", "name": "w", "input": {"city": "Graz"}}}],
                    },
                    {"role": "user", "content": [{"toolResult": {"toolUseId": "t", "content": [{"text": "yes"}]}}]},
                    {"role": "assistant", "content": [{"text": f"a{i}"}]},
                ]
            }
        ),
        _ASKED,
    ),
    Case(
        "Cohere chat calls",
        "cohere.jsonl",
        lines(
            lambda i: {
                "preamble": "be kind",
                "chat_history": [{"role": "USER", "message": "hi"}, {"role": "CHATBOT", "message": "hello"}],
                "message": f"q{i}",
                "text": f"a{i}",
            }
        ),
        answer(["system: be kind", "user: hi", "assistant: hello", "user: q0"], "a0"),
    ),
    Case(
        "Cohere chat tuning",
        "cohere_tune.jsonl",
        lines(lambda i: {"messages": [{"role": "User", "content": f"q{i}"}, {"role": "Chatbot", "content": f"a{i}"}]}),
        chat("user: q0", "assistant: a0"),
    ),
    Case(
        "Mistral thinking chunks",
        "mistral.jsonl",
        lines(
            lambda i: {
                "messages": [
                    {"role": "user", "content": f"q{i}"},
                    {"role": "assistant", "content": [{"type": "thinking", "thinking": _text("hmm")}, *_text(f"a{i}")]},
                ]
            }
        ),
        chat("user: q0", "assistant: a0"),
    ),
    Case(
        "Capybara's pairs",
        "capybara.jsonl",
        lines(lambda i: {"source": f"s{i}", "conversation": [{"input": f"q{i}", "output": f"a{i}"}, {"input": "more", "output": "b"}]}),
        chat("user: q0", "assistant: a0", "user: more", "assistant: b"),
    ),
    Case(
        "Firefly's pairs",
        "firefly.jsonl",
        lines(lambda i: {"conversation_id": i, "conversation": [{"human": f"q{i}", "assistant": f"a{i}"}]}),
        chat("user: q0", "assistant: a0"),
    ),
    Case(
        "OASST trees",
        "oasst_trees.jsonl",
        lines(
            lambda i: {
                "message_tree_id": f"m{i}",
                "prompt": {
                    "role": "prompter",
                    "text": f"q{i}",
                    "replies": [
                        {"role": "assistant", "text": f"worse {i}", "rank": 1, "replies": []},
                        {"role": "assistant", "text": f"a{i}", "rank": 0, "replies": []},
                    ],
                },
            }
        ),
        chat("user: q0", "assistant: a0"),
    ),
    Case(
        "OASST messages",
        "oasst.jsonl",
        lines(lambda i: {"message_id": f"m{i}", "parent_id": None, "text": f"hello {i}", "role": "prompter", "lang": "en"}),
        None,
        ("one turn", "parent_id"),
    ),
    Case(
        "a turn a row",
        "turns.csv",
        b"conversation,speaker,utterance\n" + b"".join(b"%d,user,q%d\n%d,assistant,a%d\n" % (i, i, i, i) for i in range(6)),
        None,
        ("one turn", "speaker"),
    ),
    Case(
        "LangChain messages",
        "langchain.jsonl",
        lines(
            lambda i: {
                "messages": [
                    {"type": "system", "data": {"content": "s"}},
                    {"type": "human", "data": {"content": f"q{i}"}},
                    {"type": "ai", "data": {"content": f"a{i}"}},
                ]
            }
        ),
        chat("system: s", "user: q0", "assistant: a0"),
    ),
    Case(
        "a list of messages on each line",
        "bare.jsonl",
        lines(lambda i: [{"role": "user", "content": f"q{i}"}, {"role": "assistant", "content": f"a{i}"}]),
        chat("user: q0", "assistant: a0"),
    ),
    Case("texts without speakers", "strings.jsonl", lines(lambda i: {"conversations": [f"q{i}", f"a{i}"]}), None, ("speaker",)),
    Case(
        "unknown speakers",
        "speakers.jsonl",
        lines(lambda i: {"messages": [{"role": "customer", "content": f"q{i}"}, {"role": "clerk", "content": f"a{i}"}]}),
        None,
        ("customer", "clerk", "data.roles"),
    ),
    Case(
        "a system turn as a number",
        "system_number.jsonl",
        lines(lambda i: {"system": i + 1, "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": f"a{i}"}]}),
        None,
        ("system is int",),
    ),
    Case(
        "a system turn as a message",
        "system_message.jsonl",
        lines(
            lambda i: {
                "system": {"role": "system", "content": f"pirate {i}"},
                "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": f"a{i}"}],
            }
        ),
        chat("system: pirate 0", "user: q", "assistant: a0"),
    ),
    Case(
        "Alpaca with a history (LLaMA-Factory)",
        "history.jsonl",
        lines(lambda i: {"instruction": f"q{i}", "input": "", "output": f"a{i}", "system": "s", "history": [["hi", "hello"]]}),
        chat("system: s", "user: hi", "assistant: hello", "user: q0", "assistant: a0"),
    ),
    Case(
        "images inside messages",
        "llava.jsonl",
        lines(
            lambda i: {
                "messages": [{"role": "user", "content": f"q{i}", "images": [f"{i}.png"]}, {"role": "assistant", "content": f"a{i}"}]
            }
        ),
        None,
        ("images",),
    ),
    Case(
        "paths of images beside a question",
        "image_paths.jsonl",
        lines(lambda i: {"image_path": f"{i}.png", "question": f"q{i}", "answer": f"a{i}"}),
        None,
        ("image_path",),
    ),
    Case(
        "a refusal of OpenAI",
        "refusal.jsonl",
        lines(
            lambda i: {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": None, "refusal": f"I cannot {i}"}]}
        ),
        None,
        ("refusal",),
    ),
]

"""Traces of applications, and tools for labels."""

from __future__ import annotations

from benchmarks.real_exports.case import Case, answer, completion, document, lines

CASES = [
    Case(
        "LangSmith, messages",
        "langsmith.jsonl",
        lines(
            lambda i: {
                "inputs": {"messages": [{"role": "user", "content": f"q{i}"}]},
                "outputs": {"messages": [{"role": "assistant", "content": f"a{i}"}]},
                "metadata": {},
            }
        ),
        answer(["user: q0"], "a0"),
    ),
    Case(
        "LangSmith, keys",
        "langsmith_kv.jsonl",
        lines(lambda i: {"inputs": {"question": f"q{i}"}, "outputs": {"answer": f"a{i}"}}),
        completion("q0", "a0"),
    ),
    Case(
        "LangSmith CSV",
        "langsmith.csv",
        b"id,inputs,outputs\n" + b"".join(b'%d,"{""question"": ""q%d""}","{""answer"": ""a%d""}"\n' % (i, i, i) for i in range(6)),
        completion("q0", "a0"),
    ),
    Case(
        "LangSmith runs of a chat model",
        "langsmith_runs.jsonl",
        lines(
            lambda i: {
                "inputs": {
                    "messages": [[{"lc": 1, "type": "constructor", "id": ["langchain", "HumanMessage"], "kwargs": {"content": f"q{i}"}}]]
                },
                "outputs": {"generations": [[{"text": f"a{i}", "type": "ChatGeneration"}]]},
            }
        ),
        answer(["user: q0"], "a0"),
    ),
    Case(
        "Langfuse data set",
        "langfuse.jsonl",
        lines(lambda i: {"id": f"{i}", "input": {"question": f"q{i}"}, "expectedOutput": {"answer": f"a{i}"}, "status": "ACTIVE"}),
        completion("q0", "a0"),
    ),
    Case(
        "Langfuse generations",
        "langfuse_generations.json",
        document(
            [
                {"id": f"{i}", "input": [{"role": "user", "content": f"q{i}"}], "output": {"role": "assistant", "content": f"a{i}"}}
                for i in range(6)
            ]
        ),
        answer(["user: q0"], "a0"),
    ),
    Case(
        "Phoenix spans",
        "phoenix.jsonl",
        lines(
            lambda i: {
                "name": "llm",
                "attributes.llm.input_messages": [{"message.role": "user", "message.content": f"q{i}"}],
                "attributes.llm.output_messages": [{"message.role": "assistant", "message.content": f"a{i}"}],
            }
        ),
        answer(["user: q0"], "a0"),
    ),
    Case(
        "Braintrust",
        "braintrust.jsonl",
        lines(lambda i: {"input": {"query": f"q{i}"}, "expected": f"a{i}", "metadata": {"n": i}}),
        completion("q0", "a0"),
    ),
    Case(
        "MLflow evaluation",
        "mlflow.jsonl",
        lines(lambda i: {"inputs": {"question": f"q{i}"}, "expectations": {"expected_response": f"a{i}"}}),
        completion("q0", "a0"),
    ),
    Case(
        "DeepEval goldens",
        "deepeval.json",
        document([{"input": f"q{i}", "actual_output": None, "expected_output": f"a{i}", "context": None} for i in range(6)]),
        completion("q0", "a0"),
    ),
    Case(
        "Ragas",
        "ragas.jsonl",
        lines(lambda i: {"user_input": f"q{i}", "retrieved_contexts": [f"c{i}"], "response": f"bad {i}", "reference": f"a{i}"}),
        None,
        ("user_input", "retrieved_contexts"),
    ),
    Case(
        "promptfoo results",
        "promptfoo.json",
        document(
            {
                "evalId": "e",
                "results": {
                    "version": 3,
                    "results": [
                        {"vars": {"question": f"q{i}"}, "prompt": {"raw": f"q{i}"}, "response": {"output": f"a{i}"}, "success": True}
                        for i in range(6)
                    ],
                },
            }
        ),
        completion("q0", "a0"),
    ),
    Case(
        "inputs with several keys",
        "several.jsonl",
        lines(lambda i: {"inputs": {"alpha": f"q{i}", "beta": f"c{i}"}, "outputs": {"answer": f"a{i}"}}),
        None,
        ("inputs.alpha", "inputs.beta"),
    ),
    Case(
        "Argilla 1",
        "argilla.jsonl",
        lines(
            lambda i: {
                "id": str(i),
                "instruction": f"q{i}",
                "response": f"draft {i}",
                "response.responses": [f"a{i}"],
                "response.responses.status": ["submitted"],
            }
        ),
        completion("q0", "a0"),
    ),
    Case(
        "Argilla 2",
        "argilla2.json",
        document(
            [
                {
                    "id": f"{i}",
                    "fields": {"instruction": f"q{i}"},
                    "responses": {"answer": [{"value": f"a{i}", "user_id": "u", "status": "submitted"}]},
                    "suggestions": {},
                }
                for i in range(6)
            ]
        ),
        completion("q0", "a0"),
    ),
    Case(
        "Label Studio texts",
        "labelstudio.json",
        document(
            [
                {
                    "id": i,
                    "data": {"text": f"q{i}"},
                    "annotations": [{"id": i, "result": [{"type": "textarea", "from_name": "r", "value": {"text": [f"a{i}"]}}]}],
                    "predictions": [],
                }
                for i in range(6)
            ]
        ),
        completion("q0", "a0"),
    ),
    Case(
        "Label Studio choices",
        "labelstudio_choices.json",
        document(
            [
                {
                    "id": i,
                    "data": {"text": f"q{i}"},
                    "annotations": [{"id": i, "result": [{"type": "choices", "from_name": "c", "value": {"choices": ["spam"]}}]}],
                }
                for i in range(6)
            ]
        ),
        completion("q0", "spam"),
    ),
    Case("Doccano texts", "doccano.jsonl", lines(lambda i: {"id": i, "text": f"q{i}", "label": [f"a{i}"]}), completion("q0", "a0")),
    Case(
        "Doccano spans",
        "doccano_spans.jsonl",
        lines(lambda i: {"id": i, "text": f"Anna {i}", "label": [[0, 4, "PERSON"]]}),
        None,
        ("label", "spans"),
    ),
    Case(
        "Prodigy choices",
        "prodigy.jsonl",
        lines(
            lambda i: {
                "text": f"q{i}",
                "options": [{"id": "a", "text": "spam"}, {"id": "b", "text": "ham"}],
                "accept": ["b"],
                "answer": "accept",
                "_task_hash": i,
            }
        ),
        completion("q0", "ham"),
    ),
    Case(
        "Elasticsearch hits",
        "elastic.jsonl",
        lines(lambda i: {"_index": "faq", "_id": f"{i}", "_source": {"question": f"q{i}", "answer": f"a{i}"}}),
        completion("q0", "a0"),
    ),
    Case(
        "DynamoDB items",
        "dynamodb.json",
        lines(lambda i: {"Item": {"question": {"S": f"q{i}"}, "answer": {"S": f"a{i}"}}}),
        None,
        ("Item.question",),
    ),
]

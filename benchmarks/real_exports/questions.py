"""Public benchmarks and corpora."""

from __future__ import annotations

from benchmarks.real_exports.case import Case, N, completion, document, lines

_CHOICES = "q0\nA. a\nB. b\nC. c\nD. d\nAnswer:"
CASES = [
    Case(
        "MMLU",
        "mmlu.jsonl",
        lines(lambda i: {"question": f"q{i}", "subject": f"s{i}", "choices": ["a", "b", "c", "d"], "answer": 2}),
        completion(_CHOICES, " C"),
    ),
    Case(
        "ARC",
        "arc.jsonl",
        lines(lambda i: {"question": f"q{i}", "choices": {"text": ["a", "b", "c", "d"], "label": ["1", "2", "3", "4"]}, "answerKey": "3"}),
        completion(_CHOICES, " C"),
    ),
    Case(
        "C-Eval",
        "ceval.csv",
        b"id,question,A,B,C,D,answer\n" + b"".join(b"%d,q%d,a,b,c,d,C\n" % (i, i) for i in range(N)),
        completion(_CHOICES, " C"),
    ),
    Case(
        "MedQA",
        "medqa.jsonl",
        lines(lambda i: {"question": f"q{i}", "options": {"A": "a", "B": "b", "C": "c", "D": "d"}, "answer": "c", "answer_idx": "C"}),
        completion(_CHOICES, " C"),
    ),
    Case(
        "MedMCQA",
        "medmcqa.jsonl",
        lines(lambda i: {"question": f"q{i}", "opa": "a", "opb": "b", "opc": "c", "opd": "d", "cop": 2}),
        completion(_CHOICES, " C"),
    ),
    Case(
        "HellaSwag",
        "hellaswag.jsonl",
        lines(lambda i: {"ctx": f"q{i}", "endings": ["a", "b", "c", "d"], "label": "2"}),
        completion(_CHOICES, " C"),
    ),
    Case(
        "SQuAD rows",
        "squad.jsonl",
        lines(lambda i: {"id": f"{i}", "context": f"c{i}", "question": f"q{i}", "answers": {"text": [f"a{i}"], "answer_start": [0]}}),
        completion("q0\n\nc0", "a0"),
    ),
    Case(
        "SQuAD's own file",
        "train-v1.1.json",
        document(
            {
                "version": "1.1",
                "data": [
                    {
                        "title": "t",
                        "paragraphs": [
                            {
                                "context": f"c{i}",
                                "qas": [{"id": f"{i}", "question": f"q{i}", "answers": [{"text": f"a{i}", "answer_start": 0}]}],
                            }
                            for i in range(N)
                        ],
                    }
                ],
            }
        ),
        completion("q0\n\nc0", "a0"),
    ),
    Case(
        "TriviaQA",
        "triviaqa.jsonl",
        lines(lambda i: {"question": f"q{i}", "answer": {"value": f"a{i}", "aliases": [f"a{i}", f"b{i}"]}}),
        completion("q0", "a0"),
    ),
    Case("NQ open", "nq.jsonl", lines(lambda i: {"question": f"q{i}", "answer": [f"a{i}", f"b{i}"]}), None, ("answer[0]",)),
    Case(
        "BoolQ",
        "boolq.jsonl",
        lines(lambda i: {"question": f"q{i}", "passage": f"p{i}", "answer": i % 2 == 0}),
        None,
        ("answer", "true or false"),
    ),
    Case(
        "a passage beside a question",
        "passage.jsonl",
        lines(lambda i: {"passage": f"p{i}", "question": f"q{i}", "answer": f"a{i}"}),
        completion("q0", "a0"),
        ("passage", "p0"),
    ),
    Case(
        "a schema beside a question",
        "sql.jsonl",
        lines(lambda i: {"question": f"q{i}", "schema": f"CREATE TABLE t{i}", "sql": f"SELECT {i}"}),
        completion("q0", "SELECT 0"),
        ("schema", "CREATE TABLE t0"),
    ),
    Case("CNN/DailyMail", "cnn.jsonl", lines(lambda i: {"article": f"q{i}", "highlights": f"a{i}", "id": f"{i}"}), completion("q0", "a0")),
    Case("SAMSum", "samsum.jsonl", lines(lambda i: {"id": f"{i}", "dialogue": f"A: q{i}", "summary": f"a{i}"}), completion("A: q0", "a0")),
    Case(
        "WMT",
        "wmt.jsonl",
        lines(lambda i: {"translation": {"de": f"q{i}", "en": f"a{i}"}}),
        None,
        ("translation.de", "translation.en"),
    ),
    Case("MATH", "math.jsonl", lines(lambda i: {"problem": f"q{i}", "level": f"Level {i}", "solution": f"a{i}"}), completion("q0", "a0")),
    Case(
        "HumanEval",
        "humaneval.jsonl",
        lines(
            lambda i: {"task_id": f"HumanEval/{i}", "prompt": f"def f{i}():\n", "canonical_solution": f"    return {i}", "test": f"t{i}"}
        ),
        completion("def f0():\n", "    return 0"),
    ),
    Case(
        "GSM8K", "gsm8k.jsonl", lines(lambda i: {"question": f"q{i}", "answer": f"thus {i}\n#### {i}"}), completion("q0", "thus 0\n#### 0")
    ),
    Case(
        "premise and hypothesis",
        "nli.jsonl",
        lines(lambda i: {"premise": f"p{i}", "hypothesis": f"h{i}", "label": i % 3}),
        None,
        ("premise", "hypothesis"),
    ),
    Case("a prompt alone", "prompts.jsonl", lines(lambda i: {"prompt": f"q{i}"}), None, ("prompt", "completion")),
    Case(
        "system and context that come late",
        "late.jsonl",
        b"".join([b'{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a%d"}]}\n' % i for i in range(150)])
        + b'{"system": "pirate", "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "arr"}]}\n' * 20,
        "user: q\n«assistant: a0\n»",
        ("system", "pirate"),
    ),
]

"""Public corpora whose two columns are named for their subject. They are tried after the columns that are named for roles."""

from __future__ import annotations

from tuneyard.data.forms.form import Form, by_paths

# One entry is one corpus, or several with the same columns: the columns of the prompt and of the completion.
_PAIRS = [
    ("CNN/DailyMail", "article", "highlights"),
    ("XSum, GovReport", "document", "summary"),
    ("SAMSum, DialogSum", "dialogue", "summary"),
    ("arXiv and PubMed summaries", "article", "abstract"),
    ("Gigaword", "document", "headline"),
    ("texts and summaries", "text", "summary"),
    ("articles and summaries", "article", "summary"),
    ("MATH, NuminaMath", "problem", "solution"),
    ("GSM8K with solutions", "question", "solution"),
    ("HumanEval", "prompt", "canonical_solution"),
    ("MBPP", "text", "code"),
    ("MBPP, sanitized", "prompt", "code"),
    ("text to SQL", "question", "sql"),
    ("Spider", "question", "query"),
    ("WikiLarge", "source", "simplified"),
    ("FLAN, xP3", "inputs", "targets"),
]


def _entry(name: str, prompt: str, completion: str) -> Form:
    example = {prompt: "2+2?", completion: "4"}
    return by_paths(name, "prompt-completion", example, late=True, prompt=prompt, completion=completion)


FORMS = [_entry(*pair) for pair in _PAIRS]

"""Summaries of reports: a T5, built small from its configuration. The best checkpoint is that with the highest ROUGE."""

import torch
from made_data import REPORT_WORDS
from torch.nn.utils.rnn import pad_sequence
from transformers import T5Config, T5ForConditionalGeneration

WORDS = ["<pad>", "<end>", *REPORT_WORDS]
NUMBERS = {word: number for number, word in enumerate(WORDS)}
PAD, END, UNSCORED, LONGEST = 0, 1, -100, 12


class Summaries:
    def model(self):
        size = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4, "dropout_rate": 0.0}
        return T5ForConditionalGeneration(T5Config(vocab_size=len(WORDS), decoder_start_token_id=PAD, **size))

    def collate(self, rows):
        reports, summaries = ([_numbers(row[name]) for row in rows] for name in ("report", "summary"))
        labels = pad_sequence(summaries, batch_first=True, padding_value=UNSCORED)
        return {"input_ids": pad_sequence(reports, batch_first=True), "labels": labels, "count": (labels != UNSCORED).sum()}

    def loss(self, model, batch):
        return model(input_ids=batch["input_ids"], attention_mask=batch["input_ids"] != PAD, labels=batch["labels"]).loss

    def predict(self, model, batch):
        said = model.generate(batch["input_ids"], attention_mask=batch["input_ids"] != PAD, max_new_tokens=LONGEST, num_beams=2)
        return [{"output": _text(ours), "reference": _text(theirs)} for ours, theirs in zip(said, batch["labels"], strict=True)]


def _numbers(text):
    return torch.tensor([*(NUMBERS[word] for word in text.split()), END])


def _text(numbers):
    return " ".join(WORDS[number] for number in numbers.tolist() if number > END)

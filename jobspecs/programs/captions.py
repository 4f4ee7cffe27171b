"""Captions for images: a vision encoder and a text decoder with cross-attention, both built small from their configurations."""

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence
from transformers import GPT2Config, VisionEncoderDecoderConfig, VisionEncoderDecoderModel, ViTConfig

SIDE = 16
WORDS = ["<end>", "a", "small", "large", "red", "green", "blue", "square", "disc", "above", "below", "left", "right", "of", "the", "middle"]
NUMBERS = {word: number for number, word in enumerate(WORDS)}
END, UNSCORED = 0, -100


class Captions:
    def model(self):
        vision = ViTConfig(
            image_size=SIDE, patch_size=4, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        )  # fmt: skip
        text = GPT2Config(
            vocab_size=len(WORDS), n_positions=16, n_embd=32, n_layer=2, n_head=2, bos_token_id=END, eos_token_id=END,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, add_cross_attention=True, is_decoder=True,
        )  # fmt: skip
        model = VisionEncoderDecoderModel(VisionEncoderDecoderConfig.from_encoder_decoder_configs(vision, text))
        model.encoder.pooler.requires_grad_(False)  # captions look at patches, never at the pooled image
        return model

    def collate(self, rows):
        images = np.stack([np.frombuffer(row["image"], np.uint8).reshape(SIDE, SIDE, 3) for row in rows])
        texts = [torch.tensor([*(NUMBERS[word] for word in row["caption"].split()), END]) for row in rows]
        labels = pad_sequence(texts, batch_first=True, padding_value=UNSCORED)
        inputs = labels.roll(1, dims=1).clamp(min=END)  # each word sees the words before it; the first sees <end>
        inputs[:, 0] = END
        return {
            "pixels": torch.tensor(images).permute(0, 3, 1, 2).float() / 127.5 - 1,
            "inputs": inputs,
            "labels": labels,
            "count": (labels != UNSCORED).sum(),  # the loss is a mean over words, and captions are not equally long
        }

    def loss(self, model, batch):
        logits = model(pixel_values=batch["pixels"], decoder_input_ids=batch["inputs"], use_cache=False).logits
        return cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), ignore_index=UNSCORED)

    def predict(self, model, batch):
        said = torch.full((len(batch["pixels"]), 1), END)
        for _ in range(12):
            logits = model(pixel_values=batch["pixels"], decoder_input_ids=said, use_cache=False).logits
            said = torch.cat([said, logits[:, -1:].argmax(-1)], dim=1)
        return [{"caption": _text(row[1:].tolist())} for row in said]


def _text(numbers):
    numbers = numbers[: numbers.index(END)] if END in numbers else numbers
    return " ".join(WORDS[number] for number in numbers)

"""Initial weights of tables. They do not depend on the placement: each block of rows has its own generator."""

from __future__ import annotations

import hashlib

import torch

BLOCK_ROWS = 65_536


def initialise(
    weights: torch.Tensor, *, seed: int, table: str, shape: tuple[int, int], first_row: int = 0, first_column: int = 0
) -> torch.Tensor:
    """Fill `weights` [rows, columns], a part of a table of `shape`, from N(0, 1 / width), and return it.

    A block is drawn for the whole width, even if a rank owns only some of its columns.
    """
    if weights.is_meta:
        return weights
    rows, width = shape
    last_row = first_row + weights.shape[0]
    for block in range(first_row // BLOCK_ROWS, -(-last_row // BLOCK_ROWS)):
        start = block * BLOCK_ROWS
        drawn = torch.empty(min(BLOCK_ROWS, rows - start), width, dtype=torch.float32, device="cpu")
        drawn.normal_(std=width**-0.5, generator=_generator(seed, table, block))
        low, high = max(first_row, start), min(last_row, start + len(drawn))
        own = drawn[low - start : high - start, first_column : first_column + weights.shape[1]]
        with torch.no_grad():
            weights[low - first_row : high - first_row].copy_(own)
    return weights


def _generator(seed: int, table: str, block: int) -> torch.Generator:
    digest = hashlib.sha256(f"{seed}/{block}/{table}".encode()).digest()
    return torch.Generator("cpu").manual_seed(int.from_bytes(digest[:8], "little", signed=True))

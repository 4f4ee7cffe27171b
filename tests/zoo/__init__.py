"""Tiny random models of every causal class of transformers, through the product's own code: train, save, reload, answer.

`configs` builds a tiny config of any model type, `checks` takes one architecture through everything, `page` writes
`docs/reference/models.md`. `python -m tests.zoo` runs the named architectures, each in its own fork.
"""

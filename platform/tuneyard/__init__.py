"""Tuneyard: fine-tune and score language models across GPU clusters, from one YAML file that also runs on a laptop."""

__version__ = "0.1.0"

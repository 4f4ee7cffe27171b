"""Proofs on every run that training and saving do what was asked: before the first step, in it, and after the last."""

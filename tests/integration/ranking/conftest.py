"""Rankers in training, with the caches of the other training tests."""

from tests.integration.training.conftest import no_save_left_out, one_thread, quiet_process

__all__ = ["no_save_left_out", "one_thread", "quiet_process"]

"""Training on meshes of ranks, and programs, with the material of the other training tests."""

from tests.integration.training.conftest import material, no_save_left_out, one_thread, quiet_process, s3, s3_server

__all__ = ["material", "no_save_left_out", "one_thread", "quiet_process", "s3", "s3_server"]

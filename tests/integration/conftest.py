"""Servers of the whole folder: a fixture that two conftest files import is made twice."""

from tests.servers.installed import hdfs_server, s3, s3_server, webhdfs_port

__all__ = ["hdfs_server", "s3", "s3_server", "webhdfs_port"]

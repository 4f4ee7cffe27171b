from tests.servers.installed import mortal, postgres, postgres_server, s3, s3_server

__all__ = ["mortal", "postgres", "postgres_server", "s3", "s3_server"]

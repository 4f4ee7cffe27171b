from tests.servers import postgres, postgres_server, s3, s3_server

__all__ = ["postgres", "postgres_server", "s3", "s3_server"]

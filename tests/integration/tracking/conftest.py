from tests.servers.installed import mortal, postgres, postgres_server

__all__ = ["mortal", "postgres", "postgres_server"]

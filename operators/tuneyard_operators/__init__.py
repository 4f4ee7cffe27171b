"""Controllers around federation/ and api/. Nothing here yet."""

"""web pages over history and hub. Nothing here yet."""

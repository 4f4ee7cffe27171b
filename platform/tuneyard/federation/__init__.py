"""pure scheduling: World + Policy -> Decisions. Nothing here yet."""

"""storage: see docs/design."""

"""Commands about jobs of a hub, and how a job is drawn."""

"""Commands for jobs of a hub, and the texts that show a job."""

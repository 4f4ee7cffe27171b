"""The views of a running job: live, in plain lines, and in a notebook."""

"""A finished model leaves this machine: to the Hugging Face hub, to a bucket, or into a file of another program."""

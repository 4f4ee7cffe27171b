"""Serves models by vLLM's own server with OpenAI's API: one engine, one base model, and adapters by name.

`models` decides what is served, `forms` how prompts of each model are rendered, `arguments` how the server is started, and `process` runs
it. `middleware` runs inside the server.
"""

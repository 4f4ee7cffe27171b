"""Score tasks whose rows an endpoint with OpenAI's API answers.

1. `prompts` makes text or chat messages of a row, `request` makes the body of a request.
2. `engine` sends requests (`sender`) when `pace` (rate limits) and `trouble` (refusals for load, a server that is away) allow it.
3. `reply` reads what comes back: an answer, a failure of one row, or a refusal of all requests.
4. `worker` and `work` fit this into a pool of workers, like vLLM's engines.
"""

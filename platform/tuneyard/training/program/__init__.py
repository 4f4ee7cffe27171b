"""Training by a program: an object in the user's own module that defines a batch, a loss and a prediction (RedCoast's API, Tan et al.
2024). Order of data, checkpoints, resume, evaluation, MFU and the report are those of fine-tuning.

`contract` defines a program, `loading` imports it, `module` makes its loss a forward pass for DDP and DeepSpeed, `trainer` trains with it,
`attempt` is one attempt from rows to artifacts. Programs run only in ranks: no code that validates, plans, submits or schedules imports
them.
"""

"""Training by a program: an object of the user's own module that says what a batch, a loss and a prediction are (RedCoast's API, Tan et al.
2024). Order of data, checkpoints, resume, evaluation, MFU and the report are those of fine-tuning.

`contract` says what a program is, `loading` finds it, `module` puts its loss where DDP and DeepSpeed see it, `trainer` trains by it,
`attempt` is one attempt from rows to artifacts. A program runs in ranks alone: nothing that validates, plans, submits or schedules
imports it.
"""

"""The JobSpec and its companions as pydantic models: the single source of the CRDs, the JSON schema, the docs and the YAML errors.

`tuneyard validate`, the operators and every other room share this room. It imports no other room but the table of metrics, and no heavy
library.
"""

from tuneyard.api.answers import AnswerAt, Bleu, Choices, Embedding, Numeric, PassAt
from tuneyard.api.attempt_report import STOP_GRACE_S, AttemptReport, AttemptState, Failure, RankPlace, StopRequest
from tuneyard.api.base import API_VERSION, EnvVar, Fields, KeyRef, Metadata, Resource
from tuneyard.api.cluster import Cluster, ClusterStatus, NodeInventory, Sku
from tuneyard.api.data import DataService, MixPart, ScoreData, Source, TrainData
from tuneyard.api.endpoint import Endpoint
from tuneyard.api.errors import BadInput, Blame, FailureKind, JobFailed, StorageError, TuneyardError
from tuneyard.api.jobspec import STORED, Job, JobSpec, Retries
from tuneyard.api.lm_eval import LmEval
from tuneyard.api.loading import Document, load_documents, load_jobspec, load_templates, parse
from tuneyard.api.rank import EmbeddingTables, RankTask
from tuneyard.api.rules import Violation, check_rules, check_task
from tuneyard.api.rules_case import CPU, Device
from tuneyard.api.schedule import ModelTemplate, Schedule
from tuneyard.api.score import Engine, Generation, Judge, RankerScoring, ScoreTask, Windows
from tuneyard.api.serve import ServeTask
from tuneyard.api.status import Attempt, Condition, JobStatus, Phase, PlacementStatus, Progress, TaskStatus
from tuneyard.api.tasks import ProcessTask, Resources, Task, TuneTask, WorkerRange
from tuneyard.api.team import Team
from tuneyard.api.templates import FindTemplate
from tuneyard.api.tracking import Comet, Mlflow, Tensorboard, Tracking, Wandb
from tuneyard.api.train import Adapter, Batch, Method, ModelRef, Offload, Optimizer, Strategy, TrainTask
from tuneyard.api.transforms import Transform

__all__ = [
    "API_VERSION",
    "CPU",
    "STOP_GRACE_S",
    "STORED",
    "Adapter",
    "AnswerAt",
    "Attempt",
    "AttemptReport",
    "AttemptState",
    "BadInput",
    "Batch",
    "Blame",
    "Bleu",
    "Choices",
    "Cluster",
    "ClusterStatus",
    "Comet",
    "Condition",
    "DataService",
    "Device",
    "Document",
    "Embedding",
    "EmbeddingTables",
    "Endpoint",
    "Engine",
    "EnvVar",
    "Failure",
    "FailureKind",
    "Fields",
    "FindTemplate",
    "Generation",
    "Job",
    "JobFailed",
    "JobSpec",
    "JobStatus",
    "Judge",
    "KeyRef",
    "LmEval",
    "Metadata",
    "Method",
    "MixPart",
    "Mlflow",
    "ModelRef",
    "ModelTemplate",
    "NodeInventory",
    "Numeric",
    "Offload",
    "Optimizer",
    "PassAt",
    "Phase",
    "PlacementStatus",
    "ProcessTask",
    "Progress",
    "RankPlace",
    "RankTask",
    "RankerScoring",
    "Resource",
    "Resources",
    "Retries",
    "Schedule",
    "ScoreData",
    "ScoreTask",
    "ServeTask",
    "Sku",
    "Source",
    "StopRequest",
    "StorageError",
    "Strategy",
    "Task",
    "TaskStatus",
    "Team",
    "Tensorboard",
    "Tracking",
    "TrainData",
    "TrainTask",
    "Transform",
    "TuneTask",
    "TuneyardError",
    "Violation",
    "Wandb",
    "Windows",
    "WorkerRange",
    "check_rules",
    "check_task",
    "load_documents",
    "load_jobspec",
    "load_templates",
    "parse",
]

"""Where a job leaves the hub a choice, it is placed where its model fits, by the planner; an unknown model is said not to be checked."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from tuneyard.admission import ask_of
from tuneyard.admission.fits import UNCHECKED, _Asked
from tuneyard.admission.shapes import essence_of
from tuneyard.api import JobSpec, JobStatus, TrainTask
from tuneyard.catalog import gpu, known_config, shape_from_config
from tuneyard.catalog.open_models import _CONFIGS
from tuneyard.cli.jobs.why import _task, facts
from tuneyard.cluster import Outlook, Snapshot
from tuneyard.federation import FITS_NEVER, Ask
from tuneyard.planning import plans

NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
LARGE, MIDDLE, SMALL = "meta-llama/Llama-3.1-70B", "meta-llama/Llama-3.1-8B", "Qwen/Qwen2.5-0.5B"
FLEET = ("l40s-48gb", "h100-80gb", "cpu")


def job(name: str = LARGE, *, workers: Any = "auto", sku: tuple[str, ...] = (), skus: tuple[str, ...] = (), **train: Any) -> JobSpec:
    body = {"model": {"name": name}, "data": {"source": "s3://b/chats.jsonl"}, "batch": {"global": 64}, "steps": 10} | train
    tasks = [{"name": "train", "train": body, "resources": {"workers": workers, "sku": list(sku)}}]
    spec = {"tasks": tasks, "placement": {"skus": list(skus)}}
    return JobSpec.model_validate({"metadata": {"name": "j", "namespace": "default"}, "spec": spec})


def ask(one: JobSpec, *offered: str) -> Ask:
    return ask_of(one, 0.0, "train", JobStatus(), offered or FLEET)


def cluster(name: str, sku: str, nodes: int, gpus: int = 8) -> dict[str, Any]:
    found = [{"name": f"{name}-{n}", "sku": sku, "gpus": gpus, "free": gpus} for n in range(nodes)]
    skus = [{"name": sku, "nodes": nodes, "gpusPerNode": gpus}]
    return {"metadata": {"name": name}, "spec": {"skus": skus}, "status": {"healthy": True, "nodes": found}}


def outlook(one: JobSpec, *clusters: dict[str, Any]) -> Outlook:
    """What the hub's scheduler would decide for a job among these clusters, of which nothing is used."""
    snapshot = Snapshot(clusters, (), ())
    (found,) = snapshot.outlook([ask_of(one, NOW.timestamp(), "train", JobStatus(), snapshot.skus)], NOW)
    return found


CARD, NODE, CPUS = cluster("card", "l40s", 1, 1), cluster("node", "h100", 1), cluster("cpus", "cpu", 4)


def never(one: JobSpec, *clusters: dict[str, Any]) -> str:
    found = outlook(one, *clusters)
    assert found.place is None
    assert found.wait is not None
    assert found.wait.held.startswith("no cluster could ever run it: ")
    return found.wait.held.removeprefix("no cluster could ever run it: ")


def test_an_open_batch_takes_any_number_of_gpus_on_which_one_row_fits() -> None:
    least = dict(ask(job(batch={"global": "auto"})).least)
    assert least["h100-80gb"] == 24  # 64 rows divide over 32
    assert least["l40s-48gb"] == 40
    assert ask(job(MIDDLE, batch={"global": "auto"}), "h100-80gb").worlds == (8, 7, 6, 5, 4, 3)


def test_seventy_billion_parameters_are_never_placed_on_one_card() -> None:
    reason = never(job(), CARD, NODE, CPUS)
    assert reason == (
        "the model of task train is too large for cpu, unless its task names cpu; does not fit on 8 x h100-80gb: it needs at least 32; "
        "does not fit on 1 x l40s-48gb: it needs at least 64; "
        "what helps: offload the optimizer: set strategy.zero to 3 and strategy.offload.optimizer to cpu"
    )


def test_who_waits_is_told_how_many_gpus_the_model_needs() -> None:
    busy = cluster("nodes", "h100", 4)
    for node in busy["status"]["nodes"]:
        node["free"] = 0
    waiting = outlook(job(), busy, CARD)
    assert _task(waiting, NOW)[0] == "train waits for at least 32 x h100-80gb or 64 x l40s-48gb; 0 ahead of it"
    assert waiting.wait is not None
    assert waiting.wait.reasons["card"] == "the model does not fit on 1 x l40s-48gb: it needs at least 64"


def test_what_the_reason_says_helps() -> None:
    found = outlook(job(strategy={"zero": 3, "offload": {"optimizer": "cpu"}}), CARD, NODE, CPUS)
    assert found.place is not None
    assert (found.place.cluster, found.place.workers) == ("node", 8)


def test_auto_takes_as_many_machines_as_the_model_needs_and_no_more() -> None:
    found = outlook(job(), CARD, cluster("nodes", "h100", 8), CPUS)
    assert found.place is not None
    assert (found.place.cluster, found.place.workers) == ("nodes", 32)
    found = outlook(job(), NODE, cluster("cards", "l40s", 8))
    assert found.place is not None
    assert (found.place.cluster, found.place.workers) == ("cards", 64)


def test_a_model_that_one_machine_holds_gets_one() -> None:
    found = outlook(job(MIDDLE), cluster("old", "t4", 8), cluster("nodes", "h100", 4), CARD, CPUS)
    assert found.place is not None
    assert (found.place.cluster, found.place.workers) == ("nodes", 8)


def test_an_adapter_fits_on_less() -> None:
    found = outlook(job(method={"qlora": {}}), CARD, NODE, CPUS)
    assert found.place is not None
    assert (found.place.cluster, found.place.sku) == ("node", "h100-80gb")


def test_a_number_that_fits_sets_no_limit_of_its_own() -> None:
    """64 workers on clusters of 16 GPUs are too many for these, not the model too large for 16."""
    assert ask(job(MIDDLE, workers=64)).fewest("h100-80gb") == 1


def test_a_range_offers_what_fits_in_it() -> None:
    one = job(MIDDLE, workers={"min": 1, "max": 16})
    assert (ask(one).worlds, ask(one).fewest("h100-80gb")) == ((16, 8, 4), 4)
    assert "it needs at least 32" in never(job(workers={"min": 1, "max": 8}), NODE)


def test_a_number_without_sku_goes_where_it_fits() -> None:
    found = outlook(job(MIDDLE, workers=4), cluster("cards", "t4", 1), NODE, CPUS)
    assert found.place is not None
    assert found.place.cluster == "node"
    assert "it needs at least 16" in never(job(MIDDLE, workers=4), cluster("cards", "t4", 1), CPUS)


@pytest.mark.parametrize("one", [job(workers=1, sku=("l40s",)), job(workers=1, skus=("l40s",)), job(SMALL, sku=("cpu",))])
def test_who_names_a_number_and_its_sku_is_not_second_guessed(one: JobSpec) -> None:
    assert (ask(one).least, ask(one).fit) == ((), "")


def test_a_small_model_may_go_to_cpu_and_a_large_one_only_where_it_says_so() -> None:
    assert (ask(job(SMALL)).worlds, ask(job(SMALL)).fewest("cpu")) == ((2, 1), 1)
    assert ask(job(SMALL), "cpu").fewest("cpu") == 1
    found = outlook(job(SMALL), CPUS)
    assert found.place is not None
    assert ask(job(MIDDLE)).fewest("cpu") == FITS_NEVER
    assert ask(job(MIDDLE, sku=("h100", "cpu"))).fewest("cpu") == 1
    assert never(job(MIDDLE), CPUS) == "the model of task train is too large for cpu, unless its task names cpu"


def test_a_kind_that_the_catalog_lacks_is_not_judged() -> None:
    assert ask(job(), "own-gpu", "l40s").least == (("cpu", FITS_NEVER), ("l40s-48gb", 64), ("own-gpu", 1))
    assert ask(job(), "own-gpu", "l40s").worlds == (8, 4, 2, 1, 64)


def test_names_of_kinds_do_not_matter() -> None:
    assert ask(job(sku=("h100",))) == ask(job(sku=("NVIDIA-H100-80GB-HBM3",)))


@pytest.mark.parametrize(
    "name",
    [
        "acme/secret-model",
        "/models/llama-70b",
        "/models/meta-llama/Llama-3.1-70B",
        "../meta-llama/Llama-3.1-70B",
        "meta-llama/Llama-3.1-70B/../../etc",
        "s3://b/meta-llama/Llama-3.1-70B",
        "x" * 4096,
        "\u212a" * 7,
    ],
)
def test_a_model_that_nobody_knows_is_placed_as_before_and_said_not_to_be_checked(name: str) -> None:
    found = ask(job(name))
    assert (found.worlds, found.least, found.fit) == ((2, 1), (), UNCHECKED)
    busy = cluster("node", "h100", 1)
    busy["status"]["nodes"][0]["free"] = 0
    waiting = outlook(job(name), busy)
    assert waiting.wait is not None
    assert waiting.wait.reason.endswith(f"; {UNCHECKED}")
    assert facts(waiting)["unchecked"] == UNCHECKED
    assert f"  {UNCHECKED}" in _task(waiting, NOW)


def test_a_model_with_a_revision_is_not_taken_for_another() -> None:
    assert ask(job(model={"name": LARGE, "revision": "abc"})).fit == UNCHECKED


def test_a_task_that_trains_on_asks_for_the_model_that_it_comes_from() -> None:
    first = job().spec.tasks[0].to_yaml_dict()
    more = {**first, "name": "more", "train": {**first["train"], "model": {"from": "train"}}}
    two = JobSpec.model_validate({"metadata": {"name": "j"}, "spec": {"tasks": [first, more]}})
    assert ask_of(two, 0.0, "more", JobStatus(), FLEET).least == ask(job()).least
    search = {"name": "search", "tune": {"task": "train"}}
    tuned = JobSpec.model_validate({"metadata": {"name": "j"}, "spec": {"tasks": [first, search]}})
    assert ask_of(tuned, 0.0, "search", JobStatus(), FLEET).least == ask(job()).least


@pytest.mark.parametrize("wrong", [{"batch": {"global": -64}}, {"data": {"source": "s3://b/x", "maxLength": -1}}])
def test_negative_sizes_are_refused_before_anybody_plans(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        job(**wrong)
    with pytest.raises(ValidationError):
        job(workers={"min": -8, "max": 8})


@pytest.mark.parametrize(
    "strange",
    [
        {"batch": {"global": 1}},
        {"batch": {"global": 63, "micro": 2}},
        {"batch": {"global": 1_000_000}},
        {"data": {"source": "s3://b/x", "maxLength": 10**12}},
        {"strategy": {"tensorParallel": 7}},
        {"strategy": {"precision": "bf16"}},
        {"model": {"name": LARGE, "attention": "flash"}},
    ],
    ids=str,
)
@pytest.mark.parametrize("workers", ["auto", 7, {"min": 1, "max": 100_000}])
def test_whatever_a_task_asks_for_there_is_an_answer(strange: dict[str, Any], workers: Any) -> None:
    try:
        one = job(workers=workers, **strange)
    except ValidationError:
        return
    found = ask(one, "t4", "cpu", "l40s", "", "h100")
    assert found.worlds
    assert all(world > 0 for world in found.worlds)
    assert all(least > 0 for _, least in found.least)


def test_every_world_that_is_offered_has_a_plan() -> None:
    for name in (LARGE, MIDDLE, SMALL):
        one = job(name, sku=("l40s", "h100", "t4"))
        train = one.spec.tasks[0].train
        assert train is not None
        found, shape = ask(one), shape_from_config(known_config(name) or {})
        for sku, least in found.least:
            for workers in found.worlds:
                if workers >= least:
                    assert plans(train, shape, gpu(sku), workers, liger_available=True), (name, sku, workers)


def test_the_least_is_where_all_larger_worlds_fit_too() -> None:
    """Without ZeRO a single GPU may hold what two do not, for these also hold copies of gradients."""
    train = job(SMALL).spec.tasks[0].train
    assert train is not None
    asked = _Asked(train, shape_from_config(known_config(SMALL) or {}), gpu("h100-80gb"))
    asked._known = {8: True, 4: True, 2: False, 1: True}
    assert asked.least((8, 4, 2, 1)) == 4
    assert asked.least((2, 1)) == FITS_NEVER


def test_jobs_that_differ_in_data_and_length_share_an_answer() -> None:
    one, other = job().spec.tasks[0].train, job(data={"source": "s3://b/other"}, steps=99, seed=7).spec.tasks[0].train
    assert one is not None
    assert other is not None
    assert essence_of(one) == essence_of(other)
    longer = job(data={"source": "s3://b/c", "maxLength": 4096}).spec.tasks[0].train
    assert longer is not None
    assert essence_of(longer) != essence_of(one)


def test_the_dtype_of_states_is_planned_as_the_task_has_it() -> None:
    plain, halved = job(MIDDLE).spec.tasks[0].train, job(MIDDLE, optimizer={"states": "bf16"}).spec.tasks[0].train
    assert plain is not None
    assert halved is not None
    assert TrainTask.model_validate_json(essence_of(halved)).optimizer.states == "bf16"
    assert essence_of(halved) != essence_of(plain)


@pytest.mark.parametrize("name", {config["model_type"]: name for name, config in _CONFIGS.items()}.values())
def test_each_kind_of_model_that_the_catalog_knows_is_placed(name: str) -> None:
    found = ask(job(name, workers=8, method={"lora": {}}), "mi355x-288gb")
    assert dict(found.least)["mi355x-288gb"] == 1, found.fit


def test_a_task_is_placed_where_its_settings_work() -> None:
    """Flash attention has no kernels on a T4, and none on cpu; no SKU is named, and the smaller ones have room."""
    old, node = cluster("old", "t4-16gb", 4, 4), cluster("node", "h100", 1)
    flash = job("of/nobody", workers=2, model={"name": "of/nobody", "attention": "flash"})
    found = outlook(flash, old, CPUS, node)
    assert found.place is not None
    assert found.place.sku == "h100-80gb"
    said = never(flash, old, CPUS)
    assert "flash attention on a device that cannot run it (on cpu) cannot work" in said


def test_numbers_of_workers_that_break_a_rule_are_not_asked_for() -> None:
    """Of {1..8} workers, one and two are no two hosts of two."""
    within = ask(job(workers={"min": 1, "max": 8}, strategy={"zero": 3, "shardWithin": "host"}), "h100-80gb")
    assert min(within.worlds) >= 4
    pair = ask(job("of/nobody", batch={"global": 64}, strategy={"tensorParallel": 8, "contextParallel": 2}), "h100-80gb")
    assert pair.worlds == (16,), "one whole copy of the model at the least"

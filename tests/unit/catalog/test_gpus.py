"""SKUs: their facts, their names, and which of them this machine is."""

import json
import re
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneyard.api import BadInput
from tuneyard.catalog import canonical_sku, gpu, kinds, known_skus, local_devices, local_sku
from tuneyard.catalog.cpu import machine_memory_gb
from tuneyard.catalog.gpu_facts import Gpu
from tuneyard.catalog.gpu_kinds import GPU_KINDS
from tuneyard.catalog.gpu_names import Names, name_for

GPUS = [kind.sku for kind in GPU_KINDS]


@pytest.mark.parametrize("sku", GPUS)
def test_every_figure_has_a_source_and_is_plausible(sku: str) -> None:
    found = gpu(sku)
    assert found.sku == sku
    assert found.source
    assert f"{found.memory_gb:.0f}gb" in sku
    assert found.peak_flops["fp16"] > found.peak_flops["fp32"]
    assert ("bf16" in found.peak_flops) == (found.has_flash or sku == "mi100-32gb")
    assert 200 <= found.memory_bandwidth_gb_s <= 8000
    assert found.link_gb_s >= found.pcie_gb_s > 0
    assert found.resource == ("amd.com/gpu" if found.name.startswith("AMD") else "nvidia.com/gpu")


def test_peaks_are_dense() -> None:
    assert gpu("a100-80gb").peak_flops["bf16"] == 312e12
    assert gpu("h100-80gb").peak_flops["bf16"] == pytest.approx(989.4e12)


@pytest.mark.parametrize(
    ("alias", "sku"),
    [
        ("H100-SXM", "h100-80gb"),
        ("h200", "h200-141gb"),
        (" a10g ", "a10g-24gb"),
        ("A100", "a100-80gb"),
        ("v100", "v100-16gb"),
        ("4090", "rtx-4090-24gb"),
        ("RTX4090", "rtx-4090-24gb"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090-24gb"),
        ("rtx 6000 ada", "rtx-6000-ada-48gb"),
        ("a6000", "rtx-a6000-48gb"),
        ("MI300X", "mi300x-192gb"),
        ("mi250", "mi250-64gb"),
        ("AMD Instinct MI325X 256GB HBM3e", "mi325x-256gb"),
        ("NVIDIA H100-SXM5-80GB", "h100-80gb"),
        ("NVIDIA Blackwell GPU (B200-SXM-180GB)", "b200-180gb"),
    ],
)
def test_aliases_and_case_are_understood(alias: str, sku: str) -> None:
    assert gpu(alias).sku == canonical_sku(alias) == sku


def test_a_name_belongs_to_one_kind_unless_memory_tells_kinds_apart() -> None:
    names = {name for kind in GPU_KINDS for name in (kind.name, *kind.aliases) if not name.startswith("nvidia-")}  # GKE's mean one kind
    shared = {name: found for name in names if len(found := kinds_named(name)) > 1}
    assert shared == {"NVIDIA GeForce RTX 3080": ["rtx-3080-10gb", "rtx-3080-12gb"], "3080": ["rtx-3080-10gb", "rtx-3080-12gb"]}
    assert sorted(GPUS) == sorted({canonical_sku(sku) for sku in GPUS})


def kinds_named(name: str) -> list[str]:
    return [kind.sku for kind in GPU_KINDS if Names([kind]).find(name) is not None]


def test_an_unknown_sku_is_refused_with_the_nearest_and_a_way_on() -> None:
    with pytest.raises(BadInput, match=r"unknown SKU 'h100-90gb'\n.*h100-80gb.*measures it.*gpus.yaml: docs/extending/gpu-kind.md"):
        gpu("h100-90gb")
    with pytest.raises(BadInput, match=r"unknown SKU 'rtx4091'\n.*rtx-4090-24gb"):
        gpu("rtx4091")
    with pytest.raises(BadInput, match=r"such as h100-80gb or rtx-4090-24gb"):
        gpu("whatever")
    assert known_skus()[-1] == "cpu"


def test_one_near_name_is_said_as_one_and_a_far_one_not_at_all() -> None:
    with pytest.raises(BadInput, match=r"unknown SKU 'gh200-superchap'\n.*use gh200-96gb, if that is meant;"):
        gpu("gh200-superchap")
    with pytest.raises(BadInput, match=r"or .*, if one of them is meant"):
        gpu("h100-90gb")
    for far in ("superchip-9", "superchip"):
        with pytest.raises(BadInput, match="use a name of the catalog, such as"):
            gpu(far)


@pytest.mark.parametrize(
    ("sku", "flash"), [("a100-40gb", True), ("4090", True), ("mi300x", True), ("t4", False), ("v100-32gb", False), ("mi100", False)]
)
def test_flash_attention_needs_ampere_or_mi200(sku: str, flash: bool) -> None:
    assert gpu(sku).has_flash is flash


def test_a_rank_has_a_gpu_to_itself_and_a_share_of_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = cached_cpu(tmp_path, monkeypatch)
    assert gpu("a100-80gb").rank_peak_flops("bf16", 8) == 312e12
    assert gpu(cpu).rank_peak_flops("fp32", 4) == 1e11
    with pytest.raises(BadInput, match="no peak for fp8"):
        gpu("a100-80gb").rank_peak_flops("fp8")


def cached_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """`cpu`, as if it had been measured before."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    measures(monkeypatch, fp32=4e11)
    return "cpu"


def measures(monkeypatch: pytest.MonkeyPatch, *, fp32: float, bandwidth: float = 20.0, quiet: bool = True) -> None:
    """The next measurement, and whether the machine is quiet then."""
    found = {"peak_flops": {"fp32": fp32}, "memory_bandwidth_gb_s": bandwidth}
    monkeypatch.setattr("tuneyard.catalog.cpu._measure", lambda _cores: found)
    monkeypatch.setattr("tuneyard.catalog.cpu._is_quiet", lambda: quiet)


def test_a_measurement_is_kept_and_a_broken_one_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = cached_cpu(tmp_path, monkeypatch)
    assert gpu(cpu).memory_gb == machine_memory_gb()
    (file,) = (tmp_path / "tuneyard").glob("cpu-*.json")
    kept = json.loads(file.read_text())
    assert kept["peak_flops"] == {"fp32": 4e11}

    file.write_text(json.dumps({**kept, "peak_flops": {"fp32": 1.0}}))
    assert gpu(cpu).peak_flops["fp32"] == 1.0
    file.write_text("{")
    assert gpu(cpu).peak_flops["fp32"] == 4e11


def test_what_a_busy_machine_measured_is_measured_again_when_it_is_quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    measures(monkeypatch, fp32=1e11, bandwidth=30.0, quiet=False)
    assert (gpu("cpu").peak_flops["fp32"], gpu("cpu").basis) == (1e11, "doubtful")
    measures(monkeypatch, fp32=2e11, quiet=False)
    assert gpu("cpu").peak_flops["fp32"] == 1e11
    measures(monkeypatch, fp32=2e11)
    assert (gpu("cpu").peak_flops["fp32"], gpu("cpu").memory_bandwidth_gb_s, gpu("cpu").basis) == (2e11, 30.0, "measured")
    measures(monkeypatch, fp32=3e11)
    assert gpu("cpu").peak_flops["fp32"] == 2e11


@pytest.mark.parametrize(
    ("name", "memory_mib", "sku"),
    [
        ("NVIDIA A100-SXM4-40GB", 40960, "a100-40gb"),
        ("NVIDIA A100 80GB PCIe", 81920, "a100-pcie-80gb"),
        ("NVIDIA H100 80GB HBM3", 81559, "h100-80gb"),
        ("NVIDIA H100 PCIe", 81559, "h100-pcie-80gb"),
        ("NVIDIA H200", 143771, "h200-141gb"),
        ("NVIDIA B200", 183359, "b200-180gb"),
        ("NVIDIA L40S", 46068, "l40s-48gb"),
        ("NVIDIA A10G", 23028, "a10g-24gb"),
        ("Tesla T4", 15360, "t4-16gb"),
        ("Tesla V100-SXM2-32GB", 32510, "v100-32gb"),
        ("NVIDIA GeForce RTX 4090", 24564, "rtx-4090-24gb"),
        ("NVIDIA GeForce RTX 3080", 10240, "rtx-3080-10gb"),
        ("NVIDIA GeForce RTX 3080", 12288, "rtx-3080-12gb"),
        ("NVIDIA A10", 22731, "a10-24gb"),
        ("NVIDIA GH200 480GB", 97871, "gh200-96gb"),
        ("NVIDIA GB200", 189471, "gb200-186gb"),
        ("NVIDIA H100 NVL", 95830, "h100-nvl-94gb"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 97887, "rtx-pro-6000-server-96gb"),
        ("AMD Instinct MI300X", 196592, "mi300x-192gb"),
        ("Arcturus GL-XL [AMD Instinct MI100]", 32752, "mi100-32gb"),
    ],
)
def test_a_gpu_is_known_by_what_its_driver_reports(name: str, memory_mib: float, sku: str) -> None:
    found = kinds().find(name, memory_mib * 2**20 / 1e9)
    assert found is not None
    assert found.sku == sku


@pytest.mark.parametrize(
    ("labels", "sku"),
    [
        ({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB"}, "a100-40gb"),
        ({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB-SHARED"}, "a100-80gb"),
        ({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559"}, "h100-80gb"),
        ({"nvidia.com/gpu.product": "NVIDIA-GeForce-RTX-3080", "nvidia.com/gpu.memory": "12288"}, "rtx-3080-12gb"),
        ({"nvidia.com/gpu.product": "NVIDIA-GeForce-RTX-3080", "nvidia.com/gpu.memory": "20480"}, None),
        ({"nvidia.com/gpu.product": "NVIDIA-GeForce-RTX-4090"}, "rtx-4090-24gb"),
        ({"nvidia.com/gpu.product": "Tesla-V100-SXM2-32GB"}, "v100-32gb"),
        ({"nvidia.com/gpu.product": "NVIDIA-RTX-6000-Ada-Generation"}, "rtx-6000-ada-48gb"),
        ({"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}, "mi300x-192gb"),
        ({"amd.com/gpu.device-id": "74a1", "amd.com/gpu.family": "AI"}, "mi300x-192gb"),
        ({"beta.amd.com/gpu.device-id": "740f"}, "mi210-64gb"),
        ({"cloud.google.com/gke-accelerator": "nvidia-tesla-a100"}, "a100-40gb"),
        ({"cloud.google.com/gke-accelerator": "nvidia-a100-80gb"}, "a100-80gb"),
        ({"cloud.google.com/gke-accelerator": "nvidia-h100-mega-80gb"}, "h100-80gb"),
        ({"karpenter.k8s.aws/instance-gpu-name": "l40s"}, "l40s-48gb"),
        ({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"}, None),
        ({"kubernetes.io/arch": "amd64"}, None),
    ],
)
def test_a_node_is_known_by_its_labels(labels: dict[str, str], sku: str | None) -> None:
    found = kinds().of_node(labels)
    assert (found.sku if found is not None else None) == sku


@given(st.text(max_size=60), st.floats(1, 400))
def test_no_name_is_too_odd(name: str, memory_gb: float) -> None:
    found = kinds().find(name, memory_gb)
    assert found is None or 0.9 <= memory_gb / found.memory_gb <= 1.1
    assert re.fullmatch(r"[a-z0-9-]+gb", name_for(name, memory_gb))
    assert len(kinds().near(name)) <= 3


@given(
    st.sampled_from(GPU_KINDS), st.sampled_from([str.upper, str.title, lambda text: text.replace(" ", "-"), lambda text: f"{text}-SHARED"])
)
def test_case_and_punctuation_do_not_matter(kind: Gpu, written: Callable[[str], str]) -> None:
    assert kinds().find(written(kind.name), kind.memory_gb) == kind
    assert kinds().find(written(kind.sku)) == kind


def test_a_card_that_is_not_in_the_catalog_is_named_after_its_product() -> None:
    assert name_for("NVIDIA GeForce RTX 9090", 48 * 2**30 / 1e9) == "rtx-9090-48gb"
    assert name_for("NVIDIA H999 80GB HBM9", 81559 * 2**20 / 1e9) == "h999-hbm9-80gb"


@pytest.fixture
def two_h100s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose driver answers for two GPUs."""
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'GPU-a1, NVIDIA H100 80GB HBM3, 81559'\necho 'GPU-b2, NVIDIA H100 80GB HBM3, 81559'\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.usefixtures("two_h100s")
@pytest.mark.parametrize(("visible", "count"), [(None, 2), ("1", 1), ("GPU-b2", 1), ("0,1", 2), ("0,7,1", 1)])
def test_gpus_that_are_visible_are_found(visible: str | None, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    devices = local_devices()
    assert [device.sku for device in devices] == ["h100-80gb"] * count
    assert devices[0].memory_gb == pytest.approx(85.5, abs=0.1)


@pytest.mark.usefixtures("two_h100s")
@pytest.mark.parametrize("hidden", ["", "-1"])
def test_hidden_gpus_leave_a_cpu(hidden: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert local_sku() == "cpu"


def test_a_machine_without_a_driver_is_a_cpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert local_sku() == "cpu"

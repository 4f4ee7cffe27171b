"""Names of GPUs from people, drivers, torch, clouds and labels of Kubernetes nodes: names to kinds, and a name for an unknown card."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from tuneyard.catalog.gpu_facts import Gpu

_VENDOR_WORDS = frozenset(
    ("nvidia", "amd", "tesla", "geforce", "instinct", "tm", "r", "gpu", "gpus", "accelerator", "generation", "graphics", "edition")
)
"""Words that only some sources include."""
_LEAST, _MOST = 0.9, 1.1
"""Bounds of the memory that drivers report, as a share of the printed size: less with ECC, more if GiB are called GB."""
_LONGEST = 253
"""Characters of a name, as in Kubernetes. Longer text is no name."""
PRODUCT_LABELS = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "beta.amd.com/gpu.product-name",
    "amd.com/gpu.device-id",
    "beta.amd.com/gpu.device-id",
    "cloud.google.com/gke-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
)
"""Labels with the GPU of a node: from NVIDIA's GPU feature discovery, AMD's node labeller, GKE and Karpenter."""
_MEMORY_MIB_LABELS = ("nvidia.com/gpu.memory", "karpenter.k8s.aws/instance-gpu-memory")


class Names:
    """Kinds by each of their names. If kinds share a name, the first counts, unless the memory decides."""

    def __init__(self, kinds: Iterable[Gpu]) -> None:
        self.kinds = tuple(kinds)
        self._remembered = lru_cache(maxsize=4096)(self._search)
        self._exact: dict[str, list[Gpu]] = {}
        self._by_key: dict[str, list[Gpu]] = {}
        for kind in self.kinds:
            for name in dict.fromkeys((kind.sku, *kind.aliases, kind.name)):
                _add(self._exact, name.lower(), kind)
                if name not in kind.aliases or not _has_vendor(name):  # GKE's nvidia-tesla-a100 has 40 GB, which a100 does not mean
                    _add(self._by_key, _key(name), kind)
        for kind in self.kinds:  # a100-80gb is also called a100, unless an entry has that name
            _add(self._by_key, _key(_without_memory(kind.sku)), kind)

    def find(self, name: str, memory_gb: float | None = None) -> Gpu | None:
        """The kind of this name, in any case and punctuation, with or without words of the vendor. `memory_gb`: of the device, from its
        driver; kinds with another size do not match.
        """
        return self._remembered(name, memory_gb) if len(name) <= _LONGEST else None

    def _search(self, name: str, memory_gb: float | None) -> Gpu | None:
        for written in (name, *re.findall(r"[\[(](.+?)[\])]", name)):  # `Arcturus GL-XL [AMD Instinct MI100]`
            said = re.sub(r"-(shared|replica)$", "", written.strip().lower())
            found = self._exact.get(said) or self._by_key.get(_key(said), [])
            fitting = [kind for kind in found if memory_gb is None or _LEAST <= memory_gb / kind.memory_gb <= _MOST]
            if fitting:
                return fitting[0] if memory_gb is None else min(fitting, key=lambda kind: abs(kind.memory_gb - memory_gb))
        return None

    def near(self, name: str) -> list[str]:
        """SKUs with the most similar names, at most three, the nearest first. Their numbers must be similar too: `superchip-9` does not
        match a GH200 superchip.
        """
        names = {**{_key(kind.sku): kind.sku for kind in self.kinds}, **{key: found[0].sku for key, found in self._by_key.items()}}
        wanted = _key(name[:_LONGEST])
        matches = difflib.get_close_matches(wanted, names, n=9, cutoff=0.6)
        return list(dict.fromkeys(names[match] for match in matches if _numbers_are_near(wanted, match)))[:3]

    def of_node(self, labels: Mapping[str, str]) -> Gpu | None:
        """The kind in a Kubernetes node's labels; None if they name no known kind."""
        memory_mib = next((int(text) for label in _MEMORY_MIB_LABELS if re.fullmatch(r"[0-9]{1,9}", text := labels.get(label, ""))), None)
        memory_gb = memory_mib * 2**20 / 1e9 if memory_mib else None
        for label in PRODUCT_LABELS:
            if label in labels and (found := self.find(labels[label], memory_gb)) is not None:
                return found
        return None


def name_for(product: str, memory_gb: float) -> str:
    """A SKU for a card without an entry: `rtx-9090-48gb` for `NVIDIA GeForce RTX 9090` with 48 GiB."""
    size = f"{round(memory_gb * 1e9 / 2**30)}gb"
    words = [word for word in _words(product) if word not in _VENDOR_WORDS and word != size] or ["gpu"]
    return "-".join([*words, size])


def _add(names: dict[str, list[Gpu]], name: str, kind: Gpu) -> None:
    found = names.setdefault(name, [])
    if kind not in found:
        found.append(kind)


def _key(name: str) -> str:
    return "".join(word for word in _words(name) if word not in _VENDOR_WORDS)


def _has_vendor(name: str) -> bool:
    return any(word in _VENDOR_WORDS for word in _words(name))


def _words(name: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", name.lower())


def _numbers_are_near(one: str, other: str) -> bool:
    return difflib.SequenceMatcher(None, re.sub(r"\D", "", one), re.sub(r"\D", "", other)).ratio() >= 0.6


def _without_memory(sku: str) -> str:
    return re.sub(r"-\d+gb$", "", sku)

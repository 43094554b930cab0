"""What NCCL says about itself with ``NCCL_DEBUG=INFO``.

``NCCL_DEBUG_SUBSYS=INIT,GRAPH,NET,TUNING`` makes it say more.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from feedline.analysis.text.formatting import counted

# by number, NCCL's src/include/nccl_tuner.h
_ALGORITHMS = ("Tree", "Ring", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree", "PAT")
_PROTOCOLS = ("LL", "LL128", "Simple")

_VERSION_LINE = re.compile(r"NCCL version ([\w.+-]+)")
_RANKS_LINE = re.compile(r"\brank (\d+) nranks (\d+)", re.I)
_NODES_LINE = re.compile(r"\bnNodes (\d+)")
_EDGE = re.compile(
    r"(?:Channel|Ring) (\d+)(?:/\d+)? : (\d+)(?:\[\w+\])? -> (\d+)(?:\[\w+\])?(?: "
    r"\[(send|receive)\])? via (\S+)"
)
_NETWORK = re.compile(r"Using network (\S+)")
_PATTERN = re.compile(r"Pattern 4, crossNic \d+, nChannels \d+, (?:bw|speed) ([\d.]+)/([\d.]+)")
_CHOICE = re.compile(r"(?:(\w+): )?(\d+) Bytes -> Algo (\w+) proto (\w+)", re.I)
_WARNING = re.compile(r"NCCL WARN (.*)")


@dataclass(frozen=True)
class _NcclDebug:
    """What was found; everything may be missing, for the lines depend on version and subsystems.

    Attributes:
        edges: transport such as ``P2P/CUMEM`` or ``NET/IB/0/GDRDMA`` -> pairs of ranks that use it.
        bandwidth: GB/s inside a node and between nodes that NCCL expects of a ring (Pattern 4), as
            it printed them.
        choices: (operation, bytes, algorithm, protocol) -> how often.
    """

    version: str = ""
    ranks: int | None = None
    nodes: int | None = None
    network: str = ""
    edges: dict[str, set[tuple[int, int]]] = field(default_factory=dict)
    bandwidth: tuple[float, float] | None = None
    choices: dict[tuple[str, int, str, str], int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def says(self) -> list[str]:
        """Return what matters of it, in words."""
        sentences = []
        if self.ranks:
            sentences.append(f"NCCL {self.version or 'of unknown version'}: {self.ranks} ranks"
                         + (f" on {self.nodes} nodes" if self.nodes and self.nodes > 1 else ""))  # fmt: skip
        for transport, pairs in sorted(self.edges.items()):
            both_ways = {tuple(sorted(pair)) for pair in pairs}
            sentences.append(
                f"{_plain(transport)}: {counted(len(both_ways), 'pair')} of ranks ({transport})"
            )
        if self.network == "Socket" and any(name.startswith("NET/") for name in self.edges):
            sentences.append(
                "NCCL uses plain TCP sockets between nodes: it found no InfiniBand or RoCE device "
                "that it may use"
            )
        direct = {"GDRDMA" in name for name in self.edges if name.startswith("NET/IB")}
        if direct == {False}:
            sentences.append(
                "data between nodes passes through main memory: GPUDirect RDMA is off (no GDRDMA "
                "in the channel lines)"
            )
        elif False in direct:
            sentences.append(
                "part of the data between nodes passes through main memory: GPUDirect RDMA is on "
                "in some channels only"
            )
        if self.bandwidth:
            inside, outside = self.bandwidth
            sentences.append(
                f"NCCL expects {inside:g} GB/s per channel inside a node and {outside:g} GB/s "
                f"between nodes"
            )
        largest: dict[str, tuple[int, str, str]] = {}
        for (name, nbytes, algorithm, protocol), _ in sorted(
            self.choices.items(), key=lambda pair: pair[0][1]
        ):
            largest[name] = (nbytes, algorithm, protocol)
        sentences += [
            f"{name} of {nbytes:,} bytes: {algorithm}, {protocol}"
            for name, (nbytes, algorithm, protocol) in largest.items()
        ]
        return sentences + [f"NCCL warned: {warning}" for warning in self.warnings]


def read(lines: Iterable[str]) -> _NcclDebug:
    """Read the output of one process or of many together; other lines are ignored."""
    version = network = ""
    ranks = nodes = None
    bandwidth: tuple[float, float] | None = None
    edges: dict[str, set[tuple[int, int]]] = {}
    warnings: dict[str, None] = {}
    choices: Counter[tuple[str, int, str, str]] = Counter()
    for line in lines:
        if "NCCL" not in line and "Bytes -> Algo" not in line:
            continue
        if match := _EDGE.search(line):
            edges.setdefault(_family(match[5]), set()).add((int(match[2]), int(match[3])))
        elif match := _CHOICE.search(line):
            choices[
                match[1] or "collective",
                int(match[2]),
                _named(match[3], _ALGORITHMS),
                _named(match[4], _PROTOCOLS),
            ] += 1
        elif match := _PATTERN.search(line):
            bandwidth = float(match[1]), float(match[2])
        elif match := _NETWORK.search(line):
            network = match[1]
        elif match := _WARNING.search(line):
            warnings.setdefault(match[1].strip())
        version = match[1] if (match := _VERSION_LINE.search(line)) else version
        ranks = max(ranks or 0, int(match[2])) if (match := _RANKS_LINE.search(line)) else ranks
        nodes = max(nodes or 0, int(match[1])) if (match := _NODES_LINE.search(line)) else nodes
    return _NcclDebug(
        version, ranks, nodes, network, edges, bandwidth, dict(choices), tuple(warnings)
    )


def _family(transport: str) -> str:
    """Return a transport without the number of the device.

    ``NET/IB/0/GDRDMA`` -> ``NET/IB/GDRDMA``.
    """
    return "/".join(part for part in transport.split("/") if not part.isdigit())


def _named(word: str, names: tuple[str, ...]) -> str:
    if word.isdigit():
        return names[int(word)] if int(word) < len(names) else word
    return next((name for name in names if name.lower() == word.lower()), word)


def _plain(transport: str) -> str:
    if transport.startswith("P2P"):
        return "GPU to GPU (NVLink or PCIe)"
    if transport.startswith("SHM"):
        return "through shared memory of the host"
    if transport.startswith("NET/Socket"):
        return "over TCP sockets"
    return "over the network" if transport.startswith(("NET", "COLLNET")) else "by other means"

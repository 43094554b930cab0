"""How fast collectives moved their bytes, against what the link should give."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from feedline.analysis.intervals import FloatArray
from feedline.analysis.ranks.communication import CollectiveKind
from feedline.analysis.ranks.cross_rank import CrossRank
from feedline.analysis.ranks.match import CollectiveTable
from feedline.analysis.text.formatting import share, size
from feedline.analysis.traces.collectives import bus_factor, operation
from feedline.profiler.ceilings import Ceiling, Ceilings

_GB_PER_S = 1e9
# of the ceiling: nccl-tests on a quiet network vary by this much with the message's size
_GOOD = 0.80
_POOR = 0.50
_ALIKE_SIZES = 4.0  # the messages of a probe and a run are alike up to this ratio of their sizes


def collective_kinds(together: CrossRank) -> list[CollectiveKind]:
    """List kinds of collectives by total bytes, the most first.

    Times and bandwidths are those of the link, without waiting; None where an end was not seen, or
    where waiting cannot be separated from transfer (a rank of the group left no records, or clocks
    cannot be compared).
    """
    matched, took = together.matched, together.moving()
    comparable = matched.complete & np.isfinite(together.bound)
    took = np.where(comparable[:, None] & (took > 0), took, np.nan)
    rows: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for index, key in enumerate(
        zip(matched.name.tolist(), matched.nbytes.tolist(), matched.group.tolist(), strict=True)
    ):
        rows[key].append(index)
    every_kind = [_kind(matched, key, took[at]) for key, at in rows.items()]
    return sorted(
        _merged(every_kind), key=lambda kind: (-kind.bytes * kind.count, kind.name, kind.n)
    )


def _kind(matched: CollectiveTable, key: tuple[int, int, int], took: FloatArray) -> CollectiveKind:
    """Return the kind of these collectives.

    Times are float64 [n, ranks], ns; nan: not known.
    """
    name, nbytes, group = matched.names[key[0]], key[1], matched.groups[key[2]]
    known = took[~np.isnan(took).all(1)]
    median = float(np.median(np.nanmax(known, 1))) / 1e9 if len(known) else None
    each = [
        float(column[~np.isnan(column)].mean()) for column in known.T if not np.isnan(column).all()
    ]
    rate = (
        bandwidth_of(name, nbytes, len(group.ranks), max(each)) if each else _Bandwidth(None, None)
    )
    return CollectiveKind(
        operation(name),
        nbytes,
        len(group.ranks),
        group.backend,
        len(took),
        median,
        rate.algbw,
        rate.busbw,
    )


class _Bandwidth(NamedTuple):
    """GB/s; None: no bytes."""

    algbw: float | None
    busbw: float | None


def bandwidth_of(name: str, nbytes: int, ranks: int, mean_ns: float) -> _Bandwidth:
    """Return the bandwidth of collectives of one size, as nccl-tests count it (doc/PERFORMANCE.md).

    It comes from their mean time, not from the usual one.

    Args:
        name: of the collective.
        nbytes: of its message.
        ranks: of its group.
        mean_ns: in which their bytes moved, on the rank where that is longest.
    """
    rate = nbytes / mean_ns or None  # bytes per ns are GB/s
    return _Bandwidth(rate, (rate or 0.0) * bus_factor(name, ranks) or None)


def _merged(listed: Iterable[CollectiveKind]) -> list[CollectiveKind]:
    """Return the groups of one size (the columns of a mesh) as one."""
    together: dict[tuple[str, int, int, str], list[CollectiveKind]] = defaultdict(list)
    for kind in listed:
        together[kind.name, kind.bytes, kind.n, kind.backend].append(kind)
    return [_one(same) for same in together.values()]


def _one(same: list[CollectiveKind]) -> CollectiveKind:
    if len(same) == 1:
        return same[0]
    counts = np.array([kind.count for kind in same], float)

    def mean(values: list[float | None]) -> float | None:
        known = [
            (value, count) for value, count in zip(values, counts, strict=True) if value is not None
        ]
        return (
            float(np.average([v for v, _ in known], weights=[c for _, c in known]))
            if known
            else None
        )

    first = same[0]
    rest = [
        mean([getattr(kind, name) for kind in same])
        for name in ("transfer_s", "algbw_gbps", "busbw_gbps")
    ]
    return CollectiveKind(first.name, first.bytes, first.n, first.backend, int(counts.sum()), *rest)


@dataclass(frozen=True)
class _BandwidthCheck:
    """A verdict: the run's bus bandwidth over a ceiling's.

    Attributes:
        share: of the ceiling; None: there is nothing to compare with.
        message: in words.
    """

    share: float | None
    message: str


def _measured_ceiling(
    ceilings: Ceilings | None, kind: CollectiveKind
) -> tuple[float, Ceiling] | None:
    """Return the bus bandwidth (bytes/s) of the probe that is most like these collectives."""
    best: tuple[float, float, Ceiling] | None = None
    for probed in ceilings.ceilings if ceilings else []:
        rate = probed.value
        ranks = probed.settings.get("ranks")
        nbytes = probed.settings.get("bytes")
        if (
            probed.part != "all_reduce"
            or not rate
            or probed.settings.get("backend", kind.backend) != kind.backend
        ):
            continue
        bus = probed.settings.get("bus_bytes_per_s")
        bus = (
            float(bus)
            if isinstance(bus, (int, float))
            else rate * bus_factor("all_reduce", ranks)
            if isinstance(ranks, int)
            else rate
        )
        far = (
            abs(np.log(max(kind.bytes, 1) / nbytes))
            if isinstance(nbytes, (int, float)) and nbytes > 0
            else np.log(_ALIKE_SIZES) * 2
        )
        if best is None or far < best[0]:
            best = (float(far), bus, probed)
    return (best[1], best[2]) if best else None


def judge_network(
    listed: Sequence[CollectiveKind],
    together: CrossRank,
    ceilings: Ceilings | None = None,
    link_bytes_per_s: float | None = None,
) -> _BandwidthCheck:
    """Say what the largest collectives with a known bandwidth tell of the network.

    Where there are none, say why.

    Args:
        listed: of ``collective_kinds``.
        together: the ranks, compared.
        ceilings: what was probed; None: nothing was.
        link_bytes_per_s: what the network is specified to give; None: unknown.
    """
    largest = next((kind for kind in listed if kind.busbw_gbps), None)
    if largest:
        return _verdict(largest, ceilings, link_bytes_per_s)
    if not np.isfinite(together.bound):
        return _BandwidthCheck(
            None,
            "the ranks' clocks cannot be compared, so transfer cannot be separated from waiting",
        )
    if len(together.matched.complete) and not together.matched.complete.any():
        return _BandwidthCheck(
            None,
            "no process group has records of all its ranks, so transfer cannot be separated from "
            "waiting",
        )
    if any(kind.bytes for kind in listed):
        return _BandwidthCheck(
            None, "no collective was measured within a step, so the bandwidth is unknown"
        )
    return _BandwidthCheck(
        None, "message sizes are unknown, and so is the bandwidth of collectives"
    )


def _verdict(
    kind: CollectiveKind, ceilings: Ceilings | None, link_bytes_per_s: float | None = None
) -> _BandwidthCheck:
    """Say what the largest collectives tell of the network."""
    if kind.busbw_gbps is None or kind.transfer_s is None:
        return _BandwidthCheck(
            None, "no collective with a known end moved any bytes: the bandwidth is unknown"
        )
    busbw = kind.busbw_gbps * _GB_PER_S
    what = f"{kind.name} of {size(kind.bytes)} over {kind.n} ranks"
    here = f"{what} reaches a bus bandwidth of {size(busbw)}/s"
    if link_bytes_per_s:
        return _against(here, busbw / link_bytes_per_s, f"the link's {size(link_bytes_per_s)}/s")
    ceiling = _measured_ceiling(ceilings, kind)
    if ceiling is None:
        return _BandwidthCheck(
            None,
            f"{here}; to judge it, give the link's speed with --link-bandwidth RATE, or, on one "
            f"host, measure it with "
            "`feedline probe --parts all_reduce -o FILE` and pass --ceilings FILE",
        )
    return _against(
        here, busbw / ceiling[0], f"the {size(ceiling[0])}/s of the probe ({ceiling[1].name})"
    )


def _against(here: str, part: float, what: str) -> _BandwidthCheck:
    if part >= 1.15:
        return _BandwidthCheck(
            part, f"{here}, above {what}, which is therefore not the limit of this network"
        )
    word = (
        "as fast as the network allows"
        if part >= _GOOD
        else "slower than it should be"
        if part >= _POOR
        else "much too slow"
    )
    return _BandwidthCheck(part, f"{here}, {share(part)} of {what}: {word}")

"""Time for which a CPU quota of the control group stopped this process."""

from pathlib import Path

from feedline.profiler import reasons
from feedline.profiler.message import Message
from feedline.profiler.samplers.cgroup import Level, levels
from feedline.profiler.samplers.source import Rates, Source, reason


class CgroupThrottling(Source):
    """All groups of this process that have a quota, combined.

    cgroup/throttled: seconds per second stopped, summed over CPUs and groups, so it can be above 1. Everything in the groups counts, this
        process and its neighbors.
    cgroup/throttled_periods: share of the enforcement periods in which a group was stopped.
    """

    name = "cgroup"

    def __init__(self, root: Path = Path("/")) -> None:
        super().__init__()
        self._root = root
        self._limited: list[Level] = []
        self._rates = Rates()

    def prepare(self) -> str | None:
        found = levels(self._root)
        if not found:
            return f"{self._root / 'proc/self/cgroup'}: no visible control group with a CPU controller"
        for level in found:
            try:
                if level.quota_cpus() is not None:
                    level.throttling()
                    self._limited.append(level)
            except FileNotFoundError:  # the root group, or one where the controller is off: it has no quota
                continue
            except (OSError, ValueError, KeyError) as error:
                self.missing[f"cgroup {level.folder}"] = reason(error)
        if not self._limited:
            none = f"no CPU quota is set on {' or '.join(str(level.folder) for level in found)}"
            return "; ".join(self.missing.values()) or Message(none, reasons.NO_CPU_QUOTA)
        self.units = {"cgroup/throttled": "s/s", "cgroup/throttled_periods": "1"}
        self.read()
        return None

    def read(self) -> dict[str, float]:
        now = [level.throttling() for level in self._limited]
        rates = self._rates.per_second(
            {
                "stopped": sum(level.stopped_s for level in now),
                "throttled": sum(level.throttled for level in now),
                "periods": sum(level.periods for level in now),
            }
        )
        if len(rates) < 3:
            return {}
        share = rates["throttled"] / rates["periods"] if rates["periods"] else 0.0
        return {"cgroup/throttled": rates["stopped"], "cgroup/throttled_periods": share}

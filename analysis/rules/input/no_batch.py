"""No batch ever came from a loader.

The main process waited for the first one, or the loader was at its end at once.
"""

from feedline.analysis.formatting import seconds
from feedline.analysis.ledger.finding import Evidence, Finding, Severity
from feedline.analysis.ledger.view.enough_steps import REFUSED
from feedline.analysis.ledger.view.storage import LOCK
from feedline.analysis.measure.at_end import AtEnd, LastWait, of_workers
from feedline.analysis.measure.model import Loader, RunInfo

RULE_ID = "no_batch"
_SPAWN = "multiprocessing_context='spawn'"
_CHECK = (
    f"Run with DataLoader(..., {_SPAWN}). If no batch comes either, no inherited lock is the cause."
)


def found(end: AtEnd, loaders: list[Loader], run: RunInfo) -> Finding | None:
    """Say so of a run without a step; None: no loader was asked, or a batch came."""
    if end.batches:
        return None
    if end.wait is not None:
        return _waited(end.wait, end, _loader(loaders, end.wait.loader), run)
    return _at_its_end(_loader(loaders, end.exhausted)) if end.exhausted is not None else None


def _loader(loaders: list[Loader], number: int) -> Loader | None:
    return loaders[number] if number < len(loaders) else None


def _named(loader: Loader | None) -> str:
    """Return ``DataLoader (train.py:31)``."""
    if loader is None:
        return "the loader"
    made_at = loader.settings.get("made_at")
    return f"{loader.kind} ({made_at})" if made_at else loader.kind


def _waited(wait: LastWait, end: AtEnd, loader: Loader | None, run: RunInfo) -> Finding:
    first = f"no batch came from {_named(loader)}"
    if run.ended_by and not end.hangs:
        said = f"{first}: making the first one failed"
    else:
        workers = of_workers(wait)
        waited = "has waited" if run.state == "live" else "waited"
        said = (
            f"{first}: the main process {waited} {seconds(wait.s)} for the first one, from "
            f"{seconds(wait.since_s)} after the start on"
        )
        said += f"; {workers}" if workers else ""
    evidence = [
        Evidence("batches", "batches that came", 0, "batches"),
        Evidence("waited_s", "wait for the first batch", wait.s, "s"),
        Evidence(
            "wait_began_s",
            "time at which the wait began, from the start of the recording",
            wait.since_s,
            "s",
        ),
        Evidence("workers", "workers that had started", wait.workers, "workers"),
    ]
    forked = loader is not None and loader.settings.get("start_method") == "fork"
    locked = forked and bool(of_workers(wait)) and set(wait.blocked.values()) == {LOCK}
    told = end.hangs and not run.ended_by and bool(wait.workers)
    return Finding(
        RULE_ID,
        Severity.INFO,
        message=said,
        evidence=evidence,
        fix=_fix(locked) if told else "",
        refused=REFUSED,
        how_to_check=_CHECK if told and locked else "",
    )


def _fix(locked: bool) -> str:
    dump = "`py-spy dump --pid PID` on a worker shows the line"
    if not locked:
        return (
            f"{dump} at which it waits. DataLoader(..., timeout=60) turns such a wait into an "
            f"error."
        )
    return (
        "A forked worker inherits the main process's locks as they are, but not the threads that "
        "would release them. Create locks, clients "
        f"and thread pools in the worker (worker_init_fn), or start workers with DataLoader(..., "
        f"{_SPAWN}). {dump}."
    )


def _at_its_end(loader: Loader | None) -> Finding:
    return Finding(
        RULE_ID,
        Severity.INFO,
        message=f"no batch came from {_named(loader)}: it was at its end at once",
        evidence=[Evidence("batches", "batches that came", 0, "batches")],
        fix="Check what the dataset finds: its folder, file pattern, split or filter; with "
        "drop_last=True, whether it has as many samples "
        "as a batch.",
        refused=REFUSED,
        how_to_check="Print len(dataset), or iterate the dataset without a loader. If samples "
        "come, the sampler is empty.",
    )

"""No batch ever came from a loader.

The main process waited for the first one, or the loader was at its end at once.
"""

from feedline.analysis.ledger.finding import Evidence, Finding, Severity
from feedline.analysis.ledger.view.enough_steps import REFUSED
from feedline.analysis.ledger.view.storage import LOCK
from feedline.analysis.measure.at_end import AtEnd, LastWait, of_workers
from feedline.analysis.measure.model import Loader, RunInfo
from feedline.analysis.text.formatting import counted
from feedline.analysis.text.sentences import COUNT, NAME, PART, TIME, Sentence

_RULE_ID = "no_batch"

_FAILED = Sentence("no batch came from {loader}: making the first one failed", loader=NAME)
_WAITED = Sentence(
    "no batch came from {loader}: the main process {waited} {wait} for the first one",
    loader=NAME,
    waited=PART,
    wait=TIME,
)
_BEGAN = Sentence("that wait began {since} after the start of the recording", since=TIME)
_TOO_FEW = Sentence(
    "no batch came from {loader}: it has {samples}, batches of {size}, and drop_last=True",
    loader=NAME,
    samples=PART,
    size=COUNT,
)
_EMPTY = Sentence("no batch came from {loader}: it was at its end at once", loader=NAME)
_DUMP = "`py-spy dump --pid PID` on a worker shows the line at which it waits."
_TIMEOUT = "DataLoader(..., timeout=60) turns such a wait into an error."
_IN_WORKER = "Or create locks, clients and thread pools in the worker (worker_init_fn)."
_INHERITS = (
    "A forked worker inherits the main process's locks as they are, but not the threads that "
    "would release them."
)
_LOOK_AT_DATA = "Check what the dataset finds: its folder, file pattern, split or filter."
_DROP_LAST = "With drop_last=True, check whether it has as many samples as a batch."
_KEEP_LAST = "Set drop_last=False, or a smaller batch_size."
_SPAWN = "multiprocessing_context='spawn'"
_CHECK = (
    f"Run with DataLoader(..., {_SPAWN}). If no batch comes either, no inherited lock is the cause."
)


def found(end: AtEnd, loaders: list[Loader], run: RunInfo) -> Finding | None:
    """Say so of a run without a step; None: no loader was asked, or batches came from all."""
    waited = _loader(loaders, end.wait.loader) if end.wait is not None else None
    if end.wait is not None and not (waited.batches if waited is not None else end.batches):
        return _waited(end.wait, end, waited, run)
    if end.wait is not None or end.exhausted is None:
        return None
    return _at_its_end(_loader(loaders, end.exhausted))


def _loader(loaders: list[Loader], number: int) -> Loader | None:
    return loaders[number] if number < len(loaders) else None


def _named(loader: Loader | None) -> str:
    return "the loader" if loader is None else loader.kind


def _place(loader: Loader | None) -> str:
    """``train.py:31``, where it is made; empty where that is unknown."""
    return str((loader.settings.get("made_at") if loader else "") or "")


def _waited(wait: LastWait, end: AtEnd, loader: Loader | None, run: RunInfo) -> Finding:
    more: list[str] = []
    if run.ended_by and not end.hangs:
        said = _FAILED(loader=_named(loader))
    else:
        workers = of_workers(wait)
        waited = "has waited" if run.state == "live" else "waited"
        said = _WAITED(loader=_named(loader), waited=waited, wait=wait.s)
        more = [_BEGAN(since=wait.since_s), *([workers] if workers else [])]
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
    fix, *others = _fixes(locked) if told else [""]
    return Finding(
        _RULE_ID,
        Severity.INFO,
        message=said,
        more=more,
        evidence=evidence,
        fix=fix,
        fix_more=others,
        place=_place(loader),
        refused=REFUSED,
        how_to_check=_CHECK if told and locked else "",
    )


def _fixes(locked: bool) -> list[str]:
    """Return what to do first, and more."""
    if not locked:
        return [_DUMP, _TIMEOUT]
    return [f"Start workers with DataLoader(..., {_SPAWN}).", _IN_WORKER, _INHERITS, _DUMP]


def _too_few(loader: Loader | None) -> str:
    """Say that a loader drops its only batch, which is not full; empty: that is not known."""
    about = loader.settings if loader is not None else {}
    samples, size = about.get("dataset_samples"), about.get("batch_size")
    if not (about.get("drop_last") is True and isinstance(samples, int) and isinstance(size, int)):
        return ""
    if not 0 < samples < size:
        return ""
    return _TOO_FEW(loader=_named(loader), samples=counted(samples, "sample"), size=size)


def _at_its_end(loader: Loader | None) -> Finding:
    too_few = _too_few(loader)
    return Finding(
        _RULE_ID,
        Severity.INFO,
        message=too_few or _EMPTY(loader=_named(loader)),
        evidence=[Evidence("batches", "batches that came", 0, "batches")],
        fix=_KEEP_LAST if too_few else _LOOK_AT_DATA,
        fix_more=[] if too_few else [_DROP_LAST],
        place=_place(loader),
        refused=REFUSED,
        how_to_check="Print len(dataset), or iterate the dataset without a loader. If samples "
        "come, the sampler is empty.",
    )

"""Detects that a training begins in this process, and records it from then on.

Sentinels are hooks on calls that every training makes (sentinels.py). The first one called outside a loader's worker removes all of them,
starts a Session, whose taps replace them, and repeats the call. A fork of a recorded process gets sentinels of its own, above its
parent's taps.
"""

import atexit
import functools
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from feedline.profiler import masks
from feedline.profiler.arrivals import arrivals
from feedline.profiler.files import owned
from feedline.profiler.files.own_folders import INNER_KIND
from feedline.profiler.follow import leaving, processes, reporting
from feedline.profiler.follow.asked import Asked
from feedline.profiler.follow.groups import Group, attach_groups, holds, launch_of, place_of
from feedline.profiler.record import privacy
from feedline.profiler.say import say
from feedline.profiler.session.ending import Ending
from feedline.profiler.taps.patch import Patches

if TYPE_CHECKING:  # imported when a training begins: most processes make none
    from feedline.profiler.session.overrides import Overrides
    from feedline.profiler.session.session import Room, Session


class Following:
    """State of this process in the recording that it belongs to.

    Args:
        asked: settings of the recording.
        session: of this process, if it is recorded from its start.
        overrides: which the session has attached; None: they are attached when torch is imported, before anything is recorded.
    """

    def __init__(self, asked: Asked, session: "Session | None" = None, overrides: "Overrides | None" = None) -> None:
        self.asked, self.session, self.overrides = asked, session, overrides
        self._follows_a_command = session is None  # which says nothing of this process
        self._sentinels: Patches | None = None
        self._parents: Session | None = None  # of the process that this one was forked from
        self._group: Group | None = None
        self._lock = threading.RLock()

    def watch(self) -> None:
        """Set the sentinels, now that torch is imported."""
        from feedline.profiler.follow.sentinels import set_sentinels

        if self.asked.settings and self.overrides is None:
            self._override()
        self._sentinels = Patches()
        set_sentinels(self._sentinels, self.begin)

    def _override(self) -> None:
        """Change loaders from now on: they are made before the first call that shows that this is a training."""
        from feedline.profiler.session.hooks import Hooks
        from feedline.profiler.session.overrides import Overrides

        self.overrides = Overrides(self.asked.settings, self.asked.made_at, self.asked.strict)
        self.overrides.attach(Hooks(lambda *_: None, lambda: None))

    def forked(self) -> None:
        """Called in the child of a fork."""
        self._lock = threading.RLock()
        if self.session is None:
            return
        self._parents, self.session = self.session, None
        if self._is_to_make_batches():
            return
        if "torch" in sys.modules:
            self.watch()
        else:
            arrivals.when_imported("torch", lambda _: self.watch())

    def _is_to_make_batches(self) -> bool:
        """Whether this process was forked to be a loader's worker, whose own tap records it: setting sentinels takes 4 ms."""
        from feedline.profiler.record.recorder import recorder

        return recorder.starting == threading.get_ident()

    def begin(self) -> None:
        """Start a recording, unless this is a loader's worker or the program records itself."""
        with self._lock:
            sentinels, self._sentinels = self._sentinels, None
            if sentinels is None:
                return
            sentinels.undo()
            from feedline.profiler.record.recorder import recorder

            if recorder.segment is not None or _in_worker():
                return
            if self._parents is not None:
                self._parents.leave()
                self._parents = None
            self._record()

    def _record(self) -> None:
        from feedline.profiler.record.window import Window
        from feedline.profiler.session.session import Session
        from feedline.profiler.session.stop_after import StopAfter

        asked, group = self.asked, self._group
        place = place_of(group)
        launch = launch_of(place, group)
        try:
            _make_run_folder(asked)
            self.session = Session(
                Path(asked.run),
                sys.argv,
                every=asked.every,
                window=None if asked.window is None else Window.parse(asked.window),
                changes=[self.overrides] if self.overrides else [],
                record_argv=asked.record_argv,
                rooms=_rooms(Path(asked.run), launch, group.name if group else ""),
                place=place,
                launch=launch,
                group=group.name if group else "",
                stop_after=StopAfter.parse(asked.stop_after) if asked.stop_after else None,
            )
            processes.note(asked, recorded=os.path.relpath(self.session.folder, asked.run))
        except Exception as error:
            command = " ".join(privacy.recorded_argv(sys.argv, asked.record_argv))
            say(f"{command} (pid {os.getpid()}) is training but is not being recorded: {error}")

    def ends(self, ending: Ending) -> None:
        """This process ends. Never raises."""
        session, self.session = self.session, None
        if session is not None:
            session.stop(ending)
            if session.is_mine and self.overrides is not None and self._follows_a_command:
                for name, why in self.overrides.failed.items():
                    say(f"pid {os.getpid()} trained without {name}: {why}")

    def leaves(self, code: int | None) -> None:
        """This process ends without ``atexit``, or becomes another program (None)."""
        self.ends(Ending(code))
        if code is not None and self.asked.top == os.getpid():
            reporting.report_what_was_made(self.asked)

    def joins(self, group: Group) -> None:
        """Called before this process joins a group. If it is already recorded as this rank, it announces that now: the others wait for it
        and find its folder."""
        self._group = group
        if self.session is not None and self.session.is_mine:
            self.session.join(place_of(group), group.name)

    def joined(self) -> None:
        """Called after it has joined. A training that has already begun continues in the folder of its rank."""
        session, group = self.session, self._group
        if session is not None and session.is_mine and group is not None and session.manifest.group != group.name:
            session.stop(Ending(None))
            self._record()


def _rooms(run: Path, launch: str, group: str) -> "Iterator[Room]":
    """Where the folder of a rank may be created: beside the ranks of its group, else in a new training's folder."""
    from feedline.profiler.store.trainings import TRAINING_PREFIX, inner_trainings

    for folder in [run, *inner_trainings(run)] if group else []:
        if holds(folder, group):
            yield folder, lambda: None
    number = 0
    while True:
        number += 1
        name = f"{TRAINING_PREFIX}{number}"
        yield run / name, lambda name=name: owned.claim_within(run, name, INNER_KIND, launch)  # type: ignore[misc]


def _make_run_folder(asked: Asked) -> None:
    """Create the run folder, unless ``feedline run`` did. Raises OSError, PlaceTaken."""
    if not os.path.isdir(asked.run):
        owned.claim(Path(asked.run), "run", asked.launch)


def _in_worker() -> bool:
    """Whether this process makes batches for another one."""
    worker = sys.modules.get("torch.utils.data._utils.worker")
    return worker is not None and worker._worker_info is not None


_following: Following | None = None


def follow(asked: Asked, session: "Session | None" = None, overrides: "Overrides | None" = None) -> None:
    """Follow this process and those below it.

    Args:
        asked: the recording.
        session: of this process, where it is recorded from its start.
        overrides: which it has attached.
    """
    global _following
    first = _following is None
    following = _following = Following(asked, session, overrides)
    outer = Asked.read()
    if outer is not None and outer.run != asked.run:
        processes.note(outer, unseen=f"it is recorded by another feedline, into {masks.path(asked.run)}")
    asked.export()
    if first:
        os.register_at_fork(after_in_child=_forked)
        atexit.register(_at_exit)
    leaving.attach(following.leaves, functools.partial(processes.note_end, asked))
    if session is None:
        arrivals.when_imported("torch", lambda _: following.watch())
    arrivals.when_imported("torch.distributed.distributed_c10d", lambda module: attach_groups(module, following.joins, following.joined))


def follow_from_here() -> None:
    """Follow this process as its environment says; torch is about to be imported."""
    asked = Asked.read()
    if asked is None:  # FEEDLINE=1
        asked = Asked.of_this_process()
        atexit.register(reporting.report_what_was_made, asked)
    follow(asked)
    processes.note(asked, imported="torch")


def _forked() -> None:
    if _following is not None:
        try:
            _following.forked()
        except Exception:
            pass  # this process is not recorded


def _at_exit() -> None:
    if _following is not None:
        _following.ends(ending())


def ending() -> Ending:
    """The end of this process, as far as its traceback shows."""
    last = getattr(sys, "last_value", None)
    return Ending.of(last) if isinstance(last, (Exception, KeyboardInterrupt)) else Ending(None)

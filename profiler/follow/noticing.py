"""Detects that a training begins in this process, and records it from then on.

Sentinels are hooks on calls that every training makes (sentinels.py). The first one called outside
a loader's worker removes all of them, starts a Session, whose taps replace them, and repeats the
call. A fork of a recorded process gets sentinels of its own, above its parent's taps.

Watched beside them are the process group that the program creates, which gives this process its
rank, and ends that bypass ``atexit``: os._exit, os.exec*, and a signal from its parent, as
multiprocessing.Pool sends to its workers.
"""

import atexit
import functools
import hashlib
import inspect
import operator
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from feedline.profiler import masks, proc, ranks
from feedline.profiler.arrivals import arrivals
from feedline.profiler.errors import RunDamaged
from feedline.profiler.fail_open import reraise_of_handler
from feedline.profiler.files import owned
from feedline.profiler.files.own_folders import INNER_KIND
from feedline.profiler.follow import reporting
from feedline.profiler.follow.recording_settings import RecordingSettings
from feedline.profiler.printable import say_in_training
from feedline.profiler.ranks import RankPlace
from feedline.profiler.record import privacy
from feedline.profiler.record.recorder import recorder
from feedline.profiler.session.ending import Ending
from feedline.profiler.store import process_log
from feedline.profiler.store.manifest import Manifest
from feedline.profiler.taps.patch import Patches

if TYPE_CHECKING:
    from feedline.profiler.session.overrides import Overrides
    from feedline.profiler.session.session import Room, Session


# which know their ranks better than a process group does, restarts among it
_LAUNCHERS = ("torchrun", "slurm", "mpi")


@dataclass(frozen=True)
class _JoinedGroup:
    """The default process group.

    Attributes:
        address: where its ranks meet; later groups may have the same.
    """

    address: str
    rank: int
    size: int

    def name_in(self, run: str) -> str:
        """Return a name that its ranks share which are recorded into this folder, on any host.

        The folder's number on its file system, which a copy of it does not have, hides the address.
        """
        with suppress(OSError):
            given = f"{os.stat(run).st_ino} {self.size} {self.address}"
            return hashlib.sha256(given.encode()).hexdigest()[:12]
        return ""


def _watch_groups(
    module: Any, joins: Callable[[_JoinedGroup], None], joined: Callable[[], None]
) -> None:
    """Call ``joins`` before and ``joined`` after this process joins the default group.

    Neither may raise.
    """

    def watched(original: Any) -> Any:
        @functools.wraps(original)
        def init_process_group(*args: Any, **kwargs: Any) -> Any:
            group = _group_of(original, args, kwargs)
            if group is not None:
                joins(group)
            result = original(*args, **kwargs)
            if group is not None:
                joined()
            return result

        return init_process_group

    Patches().enter(module.init_process_group, watched)


def _group_of(init_process_group: Any, args: Any, kwargs: Any) -> _JoinedGroup | None:
    """Return the group that a call creates.

    None: it has a single rank, or the arguments do not say.
    """
    try:
        given = inspect.signature(init_process_group).bind(*args, **kwargs).arguments
        # torch reads "tcp://host:1234?rank=1&world_size=2" as well
        address, _, query = str(given.get("init_method") or "env://").partition("?")
        in_query = dict(pair.partition("=")[::2] for pair in query.split("&"))
        size, rank = (
            _number(given.get(name), in_query.get(name), os.environ.get(name.upper()))
            for name in ("world_size", "rank")
        )
        if size < 2 or not 0 <= rank < size:
            return None
        store = given.get("store")
        if store is not None:
            address = f"{getattr(store, 'host', '')}:{getattr(store, 'port', '')}:{getattr(store, 'path', '')}"
        elif address == "env://":
            address = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
        return _JoinedGroup(address, rank, size)
    except (TypeError, ValueError):
        return None


def _number(*given: Any) -> int:
    """Return the first of these that is a number from 0 on; -1: none is.

    Raises TypeError, ValueError: one is something else.
    """
    return next((int(value) for value in given if value is not None and int(value) >= 0), -1)


def _place_in_group(group: _JoinedGroup | None) -> RankPlace:
    """Return the rank and world size of this process.

    They come from its launcher, else from its group, else it is a single process.
    """
    place = ranks.place()
    if (
        group is None
        or place.launcher in _LAUNCHERS
        and (place.rank, place.world_size) == (group.rank, group.size)
    ):
        return place
    return RankPlace(group.rank, group.rank, group.size, None, launcher="init_process_group")


def _launch_of(place: RankPlace, group: str) -> str:
    """Return a name shared by the ranks of one training.

    Args:
        group: the name of the group that this process has joined; empty: none.
    """
    if place.launcher in _LAUNCHERS:
        return ranks.launch_id()
    if group:
        return f"group-{group}"
    return f"process-{os.getpid()}-{proc.started(os.getpid())}"


def _holds_group(run: Path, group: str) -> bool:
    """Return whether a process recorded in the run folder itself belongs to this group."""
    from feedline.profiler.store.run_folder import rank_folders

    try:
        return any(Manifest.read(folder).group == group for _, folder in rank_folders(run))
    except RunDamaged:
        return False


_Leave = Callable[[int | None], None]


_End = Callable[[int, str], None]


# a process, where it does not handle them
_ENDS = (signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


_EXECS = ("execv", "execve")  # the others call these two


#: Methods of ``Popen`` by which a child is signalled; os.kill itself would have a frame of ours in
#: what Ctrl-C prints.
_SENDERS = {"subprocess": "send_signal", "multiprocessing.popen_fork": "_send_signal"}


_patches: Patches | None = None


def _watch_ends(leaves: _Leave, ends: _End) -> None:
    """Call back before the end of this process or of a fork of it.

    Args:
        leaves: called with the exit code; None: this process becomes another program.
        ends: called with a child's process id and the name of the signal that is about to be sent
            to it.
    """
    global _patches
    if _patches is not None:
        _patches.undo()
    _patches = Patches()
    _patches.set(os, "_exit", _before(os._exit, functools.partial(_exits, leaves)))
    for name in _EXECS:
        _patches.set(os, name, _before(getattr(os, name), functools.partial(_becomes, leaves)))
    for module, name in _SENDERS.items():
        arrivals.when_imported(module, functools.partial(_watch, _patches, name, ends))


def _exits(leaves: _Leave, status: Any) -> None:
    """Note that the process ends with this status, unless os._exit will refuse it."""
    code = operator.index(status)
    if -(1 << 31) <= code < 1 << 31:  # a C int
        leaves(code & 0xFF)


def _becomes(leaves: _Leave, path: Any, *_: Any, **__: Any) -> None:
    """Note that the process becomes another program, if there is one.

    os.execvp tries one folder after another, and a program may go on where it finds none.
    """
    if isinstance(path, int) or _is_program(path):
        leaves(None)


def _is_program(path: Any) -> bool:
    """Tell whether the kernel would run a file: one that it refuses does not end this process."""
    if not (os.path.isfile(path) and os.access(path, os.X_OK)):
        return False
    try:
        with open(path, "rb") as file:
            head = file.read(256)
    except OSError:  # it may be run, but not be read
        return True
    if head.startswith(b"#!"):
        interpreter = head[2:].split(b"\n")[0].split()[:1]
        return bool(interpreter) and os.path.isfile(interpreter[0])
    return head.startswith(b"\x7fELF")


def _watch(patches: Patches, name: str, ends: _End, module: Any) -> None:
    def sends(child: Any, number: int) -> None:
        if number in _ENDS:
            ends(child.pid, signal.Signals(number).name)

    patches.set(module.Popen, name, _before(getattr(module.Popen, name), sends))


def _before(original: Any, act: Callable[..., None]) -> Any:
    @functools.wraps(original)
    def leave(*args: Any, **kwargs: Any) -> Any:
        try:
            act(*args, **kwargs)
        except Exception:  # the program ends as it wants to
            reraise_of_handler()
        return original(*args, **kwargs)

    return leave


def _note(recording: RecordingSettings, **what: str) -> None:
    """Note what this process did.

    It is ``imported="torch"``, ``recorded=`` its folder, or ``unseen=`` why it has none.
    """
    command = privacy.recorded_argv(sys.argv, recording.record_argv)
    about = {"pid": os.getpid(), "started": proc.started(os.getpid()), "command": command}
    process_log.write(Path(recording.run), {**about, **what})  # type: ignore[typeddict-item]


class _Following:
    """State of this process in the recording that it belongs to.

    Args:
        recording: settings of the recording.
        session: of this process, if it is recorded from its start.
        overrides: which the session has attached; None: they are attached when torch is imported,
            before anything is recorded.
    """

    def __init__(
        self,
        recording: RecordingSettings,
        session: "Session | None" = None,
        overrides: "Overrides | None" = None,
    ) -> None:
        self.recording, self.session, self.overrides = recording, session, overrides
        self._follows_a_command = session is None  # which says nothing of this process
        self._sentinels: Patches | None = None
        self._parents: Session | None = None  # of the process that this one was forked from
        self._group: _JoinedGroup | None = None
        self._children_ended: set[int] = set()  # pids
        if session is not None:
            session.children_ended = self._children_ended
        self._lock = threading.RLock()

    def watch(self) -> None:
        """Set the sentinels, now that torch is imported."""
        from feedline.profiler.follow.sentinels import set_sentinels

        if self.recording.settings and self.overrides is None:
            self._override()
        self._sentinels = Patches()
        set_sentinels(self._sentinels, self.begin)
        recorder.before_taps = self.give_way

    def _override(self) -> None:
        """Change loaders from now on.

        They are made before the first call that shows that this is a training.
        """
        from feedline.profiler.session.hooks import Hooks
        from feedline.profiler.session.overrides import Overrides

        self.overrides = Overrides(
            self.recording.settings, self.recording.made_at, self.recording.strict
        )
        self.overrides.attach(Hooks(lambda *_: None, lambda: None))

    def forked(self) -> None:
        """Begin anew in the child of a fork."""
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
        """Return whether this process was forked to be a loader's worker.

        That has a tap of its own. Setting sentinels takes 4 ms.
        """
        return recorder.starting == threading.get_ident()

    def begin(self) -> None:
        """Start a recording, unless this is a loader's worker or the program records itself."""
        with self._lock:
            if not self._remove_sentinels():
                return
            if recorder.segment is not None or _in_worker():
                return
            self._leave_parents()
            self._record()

    def give_way(self) -> None:
        """Leave this process to a recording whose taps are about to be attached.

        It is this one, or another: the program's own, or that of a feedline command.
        """
        with self._lock:
            if self._remove_sentinels():
                self._leave_parents()

    def _remove_sentinels(self) -> bool:
        """Remove the sentinels; return whether there were any."""
        sentinels, self._sentinels = self._sentinels, None
        if sentinels is not None:
            sentinels.undo()
        return sentinels is not None

    def _leave_parents(self) -> None:
        """Remove the taps of the process that this one was forked from."""
        if self._parents is not None:
            self._parents.leave()
            self._parents = None

    def _record(self) -> None:
        from feedline.profiler.record.detail import ProfilerWindow
        from feedline.profiler.session.session import Session
        from feedline.profiler.session.stop_after import StopAfter

        recording, group = self.recording, self._group
        place = _place_in_group(group)
        try:
            _make_run_folder(recording)
            joined = group.name_in(recording.run) if group else ""
            launch = _launch_of(place, joined)
            self.session = Session(
                Path(recording.run),
                sys.argv,
                every=recording.every,
                window=None if recording.window is None else ProfilerWindow.parse(recording.window),
                changes=[self.overrides] if self.overrides else [],
                record_argv=recording.record_argv,
                rooms=_rooms(Path(recording.run), launch, joined),
                place=place,
                launch=launch,
                group=joined,
                stop_after=StopAfter.parse(recording.stop_after) if recording.stop_after else None,
                stacks=recording.stacks,
            )
            self.session.children_ended = self._children_ended
            _note(recording, recorded=os.path.relpath(self.session.folder, recording.run))
        except Exception as error:
            reraise_of_handler()
            command = " ".join(privacy.recorded_argv(sys.argv, recording.record_argv))
            say_in_training(
                f"{command} (pid {os.getpid()}) is training but is not being recorded: {error}"
            )

    def ends(self, ending: Ending) -> None:
        """Note that the process ends.

        An interrupt may break it off: whoever notes the end again goes on with it.
        """
        session = self.session
        if session is not None:
            session.stop(ending)
            self.session = None
            if session.is_mine and self.overrides is not None and self._follows_a_command:
                for name, why in self.overrides.failed.items():
                    say_in_training(f"pid {os.getpid()} trained without {name}: {why}")

    def leaves(self, code: int | None) -> None:
        """Note that the process ends without ``atexit``, or becomes another program (None)."""
        self.ends(Ending(code))
        if code is not None and self.recording.top == os.getpid():
            reporting.report_what_was_made(self.recording)

    def sends(self, pid: int, by: str) -> None:
        """Note that this process is about to end another one, if that is still there."""
        if started := proc.started(pid):
            self._children_ended.add(pid)
            run = Path(self.recording.run)
            process_log.write(run, {"pid": pid, "started": started, "ended_by": by})

    def joins(self, group: _JoinedGroup) -> None:
        """Prepare for this process to join a group.

        If it is already recorded as this rank, it announces that now: the others wait for it and
        find its folder.
        """
        self._group = group
        if self.session is not None and self.session.is_mine:
            self.session.join(_place_in_group(group), group.name_in(self.recording.run))

    def joined(self) -> None:
        """Note that the process has joined a group.

        A training that has already begun continues in the folder of its rank.
        """
        session, group = self.session, self._group
        if (
            session is not None
            and session.is_mine
            and group is not None
            and session.manifest.group != group.name_in(self.recording.run)
        ):
            session.stop(Ending(None))
            self._record()


def _rooms(run: Path, launch: str, group: str) -> "Iterator[Room]":
    """Return where the folder of a rank may be created.

    It is beside the ranks of its group, else in a new training's folder.
    """
    from feedline.profiler.store.trainings import TRAINING_PREFIX, inner_trainings

    for folder in [run, *inner_trainings(run)] if group else []:
        if _holds_group(folder, group):
            yield folder, lambda: None
    number = 0
    while True:
        number += 1
        name = f"{TRAINING_PREFIX}{number}"
        yield run / name, lambda name=name: owned.claim_within(run, name, INNER_KIND, launch)  # type: ignore[misc]


def _make_run_folder(recording: RecordingSettings) -> None:
    """Create the run folder, unless ``feedline run`` did. Raises OSError, PlaceTaken."""
    if not os.path.isdir(recording.run):
        owned.claim(Path(recording.run), "run", recording.launch)


def _in_worker() -> bool:
    """Return whether this process makes batches for another one."""
    worker = sys.modules.get("torch.utils.data._utils.worker")
    return worker is not None and worker._worker_info is not None


_following: _Following | None = None


def follow(
    recording: RecordingSettings,
    session: "Session | None" = None,
    overrides: "Overrides | None" = None,
) -> None:
    """Follow this process and those below it.

    Args:
        recording: the recording.
        session: of this process, where it is recorded from its start.
        overrides: which it has attached.
    """
    global _following
    first = _following is None
    following = _following = _Following(recording, session, overrides)
    outer = RecordingSettings.read()
    if outer is not None and outer.run != recording.run:
        _note(outer, unseen=f"it is recorded by another feedline, into {masks.path(recording.run)}")
    recording.export()
    if first:
        os.register_at_fork(after_in_child=_forked)
        atexit.register(_at_exit)
    _watch_ends(following.leaves, following.sends)
    if session is None:
        arrivals.when_imported("torch", lambda _: following.watch())
    arrivals.when_imported(
        "torch.distributed.distributed_c10d",
        lambda module: _watch_groups(module, following.joins, following.joined),
    )


def follow_from_here() -> None:
    """Follow this process as its environment says; torch is about to be imported."""
    recording = RecordingSettings.read()
    if recording is None:  # FEEDLINE=1
        recording = RecordingSettings.of_this_process()
        atexit.register(reporting.report_what_was_made, recording)
    follow(recording)
    _note(recording, imported="torch")


def end(ending: Ending) -> None:
    """End the recording of this process, if it is being recorded.

    That may be another one than it began with: a rank that learns its number late gets a folder of
    its own.
    """
    if _following is not None:
        _following.ends(ending)


def _forked() -> None:
    if _following is not None:
        try:
            _following.forked()
        except Exception:  # this process is not recorded
            reraise_of_handler()


def _at_exit() -> None:
    end(_ending())


def _ending() -> Ending:
    """Return the end of this process, as far as its traceback shows."""
    last = getattr(sys, "last_value", None)
    return Ending.of(last) if isinstance(last, (Exception, KeyboardInterrupt)) else Ending(None)

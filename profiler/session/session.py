"""One recording, from its start in the main process to its end."""

import errno
import os
import platform
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Protocol, TypeVar

from feedline.profiler import clock, masks, proc, ranks
from feedline.profiler.clock import counters
from feedline.profiler.errors import ELSEWHERE, OVERWRITE, OutputError, PlaceTaken
from feedline.profiler.files import own_folders, owned
from feedline.profiler.message import id_of
from feedline.profiler.record import privacy
from feedline.profiler.record.detail import ProfilerWindow
from feedline.profiler.record.recorder import recorder
from feedline.profiler.samplers.blocked_threads import BlockedThreads
from feedline.profiler.samplers.cgroup import MemoryEvents
from feedline.profiler.samplers.processes import UnfollowedProcesses, WorkerMemory
from feedline.profiler.samplers.sampler import Sampler, default_sources
from feedline.profiler.session.ending import Ending
from feedline.profiler.session.hooks import Hooks, attach_in_main
from feedline.profiler.session.stop_after import StopAfter
from feedline.profiler.stacks.stack_sampler import StackSampling
from feedline.profiler.store.layout import GAUGES, RESERVE, main_segment, rank_folder
from feedline.profiler.store.manifest import Manifest, is_live
from feedline.profiler.store.segment import Segment
from feedline.profiler.taps.recompiled import compiled

_WELL = Ending(0)

_RESERVE_BYTES = 64 * 1024  # a manifest has a few KB
_MOST_NAMES = 1000  # RUN, RUN-2, RUN-3, ...
# Each write of the manifest takes longer the more loaders it has, up to 35 ms. Where there are more
# than a few, it waits until a share of them is new, or for a while.
_FEW_LOADERS, _UNWRITTEN_SHARE, _UNWRITTEN_NS = 20, 0.1, 4_000_000_000

_Taken = TypeVar("_Taken")
# a run folder, and how to claim it; raises PlaceTaken, OSError
Room = tuple[Path, Callable[[], None]]


class _Changes(Protocol):
    """Changes to the training itself (``feedline run --fix``, ``--set``)."""

    @property
    def failed(self) -> dict[str, str]:
        """Change -> why it was not applied."""

    def setup(self) -> dict[str, object]:
        """Return what the manifest says of it beside the training's set-up."""

    def attach(self, hooks: Hooks) -> None:
        """Act once torch is imported; its hooks are undone with the recording."""


def _manifest_of(launch: str, group: str, command: list[str], place: ranks.RankPlace) -> Manifest:
    """Return what is known of this process as its recording begins."""
    return Manifest(
        launch=launch,
        group=group,
        command=command,
        place=asdict(place),
        environment=privacy.environment(),
        machine=machine(),
        pid=os.getpid(),
        pid_started=proc.started(os.getpid()),
        home=proc.home(),
        parent=[os.getppid(), proc.started(os.getppid())],
        anchors=[clock.anchor()],
    )


class Session:
    """Records this process and its loaders' workers into a run folder.

    Args:
        path: the run folder; other ranks of the launch use the same one.
        command: the recorded command line, for the manifest.
        overwrite: first remove an older run at that path.
        strict: if the folder is taken, do not record, instead of recording into RUN-2, RUN-3, ...
        every: record one sample in N in detail; None: chosen so that it stays cheap.
        window: steps to record with torch.profiler; None: a few if a GPU is used.
        changes: changes to the training itself, attached before anything else.
        stop_after: where the process ends; None: where the program does.
        record_argv: which values of ``command`` the manifest keeps: ``all``, ``masked`` or
            ``none``.
        rooms: run folders to try, best first, with the function that claims each; None: ``path``,
            then RUN-2, RUN-3, ...
        place: rank and world size of this process; None: from its environment.
        launch: name shared by the ranks of its launch; None: from its environment.
        group: name of its process group, if it created one itself.
        begins: called with the session before anything is attached: an interrupt may come when all
            is, before the caller has it.
        stacks: whether the lines of code that run are sampled.
        follows: whether processes below this one record themselves; those that cannot are named.

    Attributes:
        path: the run folder that was created, perhaps under the next free name.
        refused: why it is not the first one tried; None if it is.
        children_ended: pids of the processes that this one has ended with a signal; None: nothing
            watches that.

    Raises:
        OutputError: the folder is taken, read-only, or the disk is full. Nothing is attached then.
    """

    def __init__(
        self,
        path: Path,
        command: list[str],
        overwrite: bool = False,
        strict: bool = False,
        every: int | None = None,
        window: ProfilerWindow | None = None,
        changes: Sequence[_Changes] = (),
        record_argv: str = "masked",
        rooms: Iterator[Room] | None = None,
        place: ranks.RankPlace | None = None,
        launch: str | None = None,
        group: str = "",
        follows: bool = False,
        stop_after: StopAfter | None = None,
        stacks: bool = True,
        begins: "Callable[[Session], None]" = lambda session: None,
    ) -> None:
        self._stopped = False  # to the end: one that an interrupt breaks off is begun again
        self.children_ended: set[int] | None = None
        if recorder.resume() is not None:
            raise OutputError("this process is already being recorded", "end that recording first")
        self.place = place or ranks.place()
        self.manifest = _manifest_of(
            launch or ranks.launch_id(),
            group,
            privacy.recorded_argv(command, record_argv),
            self.place,
        )
        try:
            rooms = rooms or _beside(path, self.place, self.manifest.launch, overwrite)
            (folder, self._holds), self.refused = _make_room(rooms, self.place, strict)
            # the program may go to another folder meanwhile
            self.path, self.folder = folder.parent, folder.absolute()
            self.manifest.write(self.folder)
            _reserve(self.folder)
            segment = Segment(main_segment(self.folder), {"role": "main", "pid": os.getpid()})
        except OSError as error:
            raise _unwritable(path, error) from error
        self._every, self._window = every, window
        self._changes, self._stop_after = changes, stop_after
        self._worker_memory = WorkerMemory()
        sources = [*default_sources(), self._worker_memory]
        if follows:
            sources.append(UnfollowedProcesses(self.folder.parent, record_argv))
        self._memory_events = MemoryEvents.now()
        # by name; threads that report at the same time lose nothing, as none replaces the whole
        self._hook_states: dict[str, dict[str, object]] = {}
        self._unwritten, self._written_at = 0, clock.wall_ns()  # changes to loaders
        # or a thread that reports a hook replaces a newer manifest with the one it began to write
        self._writing = threading.RLock()
        self._looks = BlockedThreads()
        self._hooks = Hooks(self._tell_hook, self._write_manifest)
        self._changing = Hooks(self._tell_hook, self._write_manifest)
        self._stacks = StackSampling(self.folder, self._tell_hook, stacks)
        self._sampler = Sampler(
            self.folder / GAUGES, sources, early=40, looks=self._looks, stacks=self._stacks
        )
        begins(self)
        try:
            self._begin(segment)
        except BaseException:  # a notebook's cell was interrupted: stop recording
            self.stop(Ending(1))
            raise

    def _begin(self, segment: Segment) -> None:
        recorder.open_main(segment, self._every)
        recorder.looks, recorder.worker_memory = self._looks, self._worker_memory
        recorder.samples_stacks = self._stacks.wanted
        for change in self._changes:
            change.attach(self._changing)
        attach_in_main(
            self._hooks,
            self.folder,
            self._tell_loader,
            self._add_to_loader,
            self._tell_setup,
            self._window,
        )
        if self._stop_after is not None:
            self._stop_after.attach(self._changing, self.stop, self.folder.parent, self.place)
        with suppress(Exception):
            self._sampler.start()

    def stop(self, ending: Ending = _WELL) -> None:
        """Detach, and complete the manifest. Never raises: the training's own end has priority."""
        if not self.is_mine or self._stopped:
            return
        try:
            recorder.finish_pause()
            self._hooks.detach()
            self._changing.detach()
            with suppress(Exception):
                self.manifest.training = {**self.manifest.training, **compiled()}
            with suppress(Exception):
                self._sampler.stop()
                self._stacks.stop()
                self.manifest.machine.update(self._sampler.machine)
                for name, why in {**self._sampler.absent, **counters.absent}.items():
                    self._tell_hook(name, False, why)
        finally:  # a notebook's cell may be interrupted here, too
            recorder.close()
        ending = self._with_killed(ending)
        self.manifest.versions = _versions()
        self.manifest.exit_code, self.manifest.ended_by, self.manifest.ended_at = (
            ending.exit_code,
            ending.by,
            ending.at,
        )
        if ending.killed:
            counted = MemoryEvents.now().since(self._memory_events)
            self.manifest.killed = {"pid": ending.killed, **counted}
        self.manifest.ended = True
        self.manifest.anchors.append(clock.anchor())
        with suppress(OSError):
            owned.discard(self.folder, RESERVE)
        self._write_manifest()
        for hold in self._holds:
            hold.release()
        self._stopped = True

    def _with_killed(self, ending: Ending) -> Ending:
        """Return an ending with the worker that was killed, where torch did not name it."""
        if not ending.by or ending.killed:
            return ending
        killed = self._worker_memory.killed(self.children_ended or ())
        if killed and self.children_ended is None:
            counted = MemoryEvents.now().since(self._memory_events)
            if counted.get("kills") == counted.get("machine_kills") == 0:
                return ending  # the program, or a command: nothing tells that it is the cause
        return ending.because_of_worker(killed) if killed else ending

    def join(self, place: ranks.RankPlace, group: str) -> None:
        """Note that the process becomes a rank of a group.

        Its folder keeps its name, which must match the rank.
        """
        if place.rank == self.place.rank:
            self.place, self.manifest.place, self.manifest.group = place, asdict(place), group
            self._write_manifest()

    def leave(self) -> None:
        """Remove the taps in a fork of the process, because they write for the parent.

        Changes to the training stay.
        """
        self._hooks.detach()

    @property
    def is_mine(self) -> bool:
        """Whether this is the recorded process, not a fork of it."""
        return self.manifest.pid == os.getpid()

    def _tell_hook(self, name: str, attached: bool, why: str) -> None:
        hook = {"name": name, "attached": attached, "why": masks.text(why), "reason": id_of(why)}
        self._hook_states.pop(name, None)  # its latest state comes last
        self._hook_states[name] = hook
        if not self._hooks.arriving:
            self._write_manifest()

    def _tell_loader(self, kind: str, settings: dict[str, object]) -> int:
        self.manifest.loaders.append({"kind": kind, **settings})
        self.manifest.versions = _versions()
        self._write_loaders()
        return len(self.manifest.loaders) - 1

    def _add_to_loader(self, number: int, settings: dict[str, object]) -> None:
        self.manifest.loaders[number].update(settings)
        self._write_loaders()

    def _write_loaders(self) -> None:
        """Write the manifest after a change to its loaders, the less often the more there are."""
        self._unwritten += 1
        few = self._unwritten <= (len(self.manifest.loaders) - _FEW_LOADERS) * _UNWRITTEN_SHARE
        if not few or clock.wall_ns() - self._written_at > _UNWRITTEN_NS:
            self._write_manifest()

    def _tell_setup(self, training: dict[str, object]) -> None:
        for change in self._changes:
            training = {**training, **change.setup()}
        self.manifest.training = training
        self._write_manifest()

    def _write_manifest(self) -> None:
        if not self.is_mine:  # a library that is imported in a fork only
            return
        if not self._holds[-1].is_of(self.folder):  # the user has removed it, or another run has
            return
        # a full disk, or a value of the program's that cannot be JSON: the last manifest stays
        with self._writing, suppress(OSError, PlaceTaken, TypeError, ValueError):
            self.manifest.hooks = list(self._hook_states.values())
            self._unwritten, self._written_at = 0, clock.wall_ns()
            self.manifest.write(self.folder)


def _beside(path: Path, place: ranks.RankPlace, launch: str, overwrite: bool) -> Iterator[Room]:
    """Yield a run folder of that name, or of the next free one.

    All ranks of a launch get the same.
    """

    def claim(run: Path, replaces: bool) -> None:
        if not replaces:
            owned.claim(run, "run", launch)
            return
        owned.replace(run, "run", launch, is_live)
        old = rank_folder(run, place.rank, place.restart)
        if old.exists():
            own_folders.remove(old, in_use=is_live)  # of an earlier recording of this process

    for number in range(1, _MOST_NAMES + 1):
        run = path if number == 1 else path.with_name(f"{path.name}-{number}")
        yield run, partial(claim, run, overwrite and number == 1)


def run_folder(
    path: Path, launch: str, overwrite: bool, strict: bool
) -> tuple[tuple[Path, own_folders.Hold], PlaceTaken | None]:
    """Create a run folder for the processes below this one, and a hold on it.

    It returns as ``_first_with_room``.

    Raises:
        OutputError: it is taken, or cannot be made.
    """
    try:
        return _first_with_room(
            _beside(path, ranks.RankPlace(), launch, overwrite),
            strict,
            lambda run: (run, own_folders.Hold(run)),
        )
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> OutputError:
    """Return the error for a run folder that cannot be created."""
    ways = [ELSEWHERE, "make room"] if error.errno in (errno.ENOSPC, errno.EDQUOT) else [ELSEWHERE]
    return OutputError.unwritable(f"the run folder {path}", error, *ways)


def _make_room(
    rooms: Iterator[Room], place: ranks.RankPlace, strict: bool
) -> tuple[tuple[Path, list[own_folders.Hold]], PlaceTaken | None]:
    """Create a folder for this rank, and a hold on it and its run folder.

    Returns and raises as ``_first_with_room``.
    """

    def take(run: Path) -> tuple[Path, list[own_folders.Hold]]:
        folder = _new_folder(run, rank_folder(run, place.rank, place.restart).name)
        return folder, [own_folders.Hold(run), own_folders.Hold(folder)]

    return _first_with_room(rooms, strict, take)


def _first_with_room(
    rooms: Iterator[Room], strict: bool, take: Callable[[Path], _Taken]
) -> tuple[_Taken, PlaceTaken | None]:
    """Return the result of ``take`` for the first run folder that is free and has space.

    What was wrong with the very first one comes with it.

    Args:
        rooms: where the folder may be created.
        strict: only look at the first.
        take: claims a folder.

    Raises:
        PlaceTaken: none has room.
        OSError: it cannot be made.
    """
    taken: PlaceTaken | None = None
    for run, claim in islice(rooms, 1 if strict else _MOST_NAMES):
        try:
            claim()
            return take(run), taken
        except PlaceTaken as error:
            taken = taken or error
    raise taken or AssertionError("unreachable")


def _new_folder(run: Path, name: str) -> Path:
    """Return the folder of a rank. Raises PlaceTaken, OSError."""
    try:
        return owned.subfolder(run, name)
    except FileExistsError as error:
        raise PlaceTaken(f"{run} already holds a run", ELSEWHERE, OVERWRITE) from error


def _reserve(folder: Path) -> None:
    """Reserve space for the final manifest, in case the disk is full by then.

    Raises:
        OSError: it is full already.
    """
    fd = owned.create(folder, RESERVE)
    try:
        os.posix_fallocate(fd, 0, _RESERVE_BYTES)
    finally:
        os.close(fd)


def machine() -> dict[str, object]:
    """Return facts about the machine, without its name."""
    from feedline.profiler.samplers.cgroup import cpu_quota, effective_cpus

    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    model = proc.cpu_model()
    return ({"cpu_model": model} if model else {}) | {
        "cpus": os.cpu_count(),
        "effective_cpus": effective_cpus(),
        "affinity_cpus": len(os.sched_getaffinity(0)),
        "affinity": proc.cpus_allowed(),
        "cpu_quota": cpu_quota(),
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "memory_bytes": pages,
        "shm_bytes": _shm_bytes(),
        "malloc": _allocator(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }


def _shm_bytes() -> int | None:
    """Return the size of /dev/shm; None: there is none, or it must not be looked at."""
    try:
        about = os.statvfs("/dev/shm")
    except OSError:
        return None
    return about.f_frsize * about.f_blocks


#: Name in the manifest -> module. Package metadata would know them too, at 30 ms for the program.
_VERSIONED = {
    "feedline": "feedline",
    "torch": "torch",
    "torchvision": "torchvision",
    "numpy": "numpy",
    "pillow": "PIL",
    "opencv-python": "cv2",
    "torchdata": "torchdata",
    "lightning": "lightning",
    "pytorch-lightning": "pytorch_lightning",
    "transformers": "transformers",
    "timm": "timm",
}
# a module of the program's own may have such a name, and say anything
_VERSION = re.compile(r"\d[\w.+!-]{0,63}", re.ASCII)


def _versions() -> dict[str, str]:
    """Return the version of each library by its name."""
    by_name = {"python": platform.python_version()}
    for name, module in _VERSIONED.items():
        with suppress(Exception):
            version = str(sys.modules[module].__version__)
            if _VERSION.fullmatch(version):
                by_name[name] = version
    return by_name


# that programs are started with, in LD_PRELOAD
_OTHER_ALLOCATORS = re.compile(rb"/lib(jemalloc|tcmalloc|mimalloc|hoard)[^/\n]*\.so")


def _allocator() -> str:
    """Return ``glibc 2.36``, or the library that is loaded beside it, such as ``jemalloc``.

    "": not known.
    """
    with suppress(OSError, ValueError, AttributeError):
        with open("/proc/self/maps", "rb") as maps:
            other = _OTHER_ALLOCATORS.search(maps.read())
        return other[1].decode() if other else os.confstr("CS_GNU_LIBC_VERSION") or ""
    return ""

"""Process groups: their names, their ranks, and the number of each collective within them.

Of libraries whose communication does not pass torch's dispatcher, it is known that they are there.
"""

import hashlib
import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from feedline.profiler import clock, message, ranks
from feedline.profiler.events import Stage
from feedline.profiler.fail_open import reraise_of_handler
from feedline.profiler.message import Message, ReportHook
from feedline.profiler.store.segment import Segment

# groups, and pairs of ranks and tags, that have a name of their own: each takes records that are
# never forgotten
_MAX_NAMED_GROUPS = 1000
_OTHER_GROUPS = "others"
_NAME_BYTES = 56  # of a NAME record
COLLECTIVES_HOOK = "collectives"  # of the hook
_UNSEEN_LIBRARIES = {
    "horovod.torch": ("Horovod", "it has queues and threads of its own"),
    "byteps.torch": ("BytePS", "it has queues and threads of its own"),
    "mpi4py.MPI": ("mpi4py", "it calls MPI itself"),
    "cupy.cuda.nccl": ("CuPy", "it calls NCCL itself"),
    "deepspeed.ops.comm": ("DeepSpeed's own kernels", "they use shared memory of their own"),
    "nvshmem": ("NVSHMEM", "ranks write into each other's memory"),
}
#: Lightning imports mpi4py only to ask whether MPI started the program, and CuPy its wrapper of
#: NCCL because it is there.
_MEANINGLESS_ALONE = ("mpi4py.MPI", "cupy.cuda.nccl")


class Channel:
    """The scope in which collectives are numbered.

    It is a group, or two of its ranks that exchange messages with one tag.

    Attributes:
        name: the same on all its ranks.
        ranks: global ranks, ascending; empty if unknown.
        numbers: of the collectives to come.
        futureless: operations of this backend that give no future.
    """

    def __init__(self, name: str, ranks: tuple[int, ...], backend: str, first: int = 0) -> None:
        self.name, self.ranks, self.backend = name, ranks, backend
        self.numbers = itertools.count(first)
        self.futureless: set[str] = set()
        self._segment: Segment | None = None
        self._ids = (0, 0)

    def id_in(self, segment: Segment) -> int:
        """Return the id of its name in a segment; its first use also records a description."""
        if segment is not self._segment:
            self._ids = segment.name_id(_shortened(self.name)), segment.name_id(self.backend)
            self._segment = segment
            for first, step, count in _rank_runs(self.ranks):
                source, backend = self._ids
                segment.add(
                    Stage.GROUP,
                    clock.wall_ns(),
                    0,
                    backend,
                    nbytes=count,
                    number=first,
                    extra=step,
                    source=source,
                )
        return self._ids[0]


class RecordedGroup:
    """A process group on one backend.

    Attributes:
        whole: all of it.
        size: n.
        in_flight: collectives whose end will be told by another thread. As long as there are some,
            ``held`` keeps the group alive: its destructor would wait for that thread, with the
            interpreter's lock that the thread is waiting for.
        ended: ns, when the last of them was.
    """

    def __init__(self, pg: Any, name: str, device: torch.device | None) -> None:
        self.of = weakref.ref(pg)
        self.size = pg.size()
        self._rank = pg.rank()
        self.whole = Channel(name, _ranks_of(pg), _backend_of(pg, device), _first_number(pg))
        self.in_flight: dict[int, object] = {}
        self.held: Any = None
        self.ended = 0
        self._pairs: dict[tuple[int | None, bool, int], Channel] = {}
        self._other_pairs = Channel(_OTHER_GROUPS, (), self.whole.backend)

    def pair(self, peer: int | None, sends: bool, tag: int) -> Channel:
        """Return the messages between this rank and another one, by its number in the group.

        None: it receives from any source.
        """
        key = peer, sends, tag
        known = self._pairs.get(key)
        if known is None:
            if len(self._pairs) >= _MAX_NAMED_GROUPS:
                return self._other_pairs
            source, target = (
                (self._rank, peer) if sends else ("any" if peer is None else peer, self._rank)
            )
            ranks = self.whole.ranks
            name = f"{self.whole.name} {source}>{target}" + (f" tag {tag}" if tag else "")
            members = (
                tuple(sorted((ranks[self._rank], ranks[peer])))
                if ranks and peer is not None
                else ()
            )
            known = self._pairs[key] = Channel(name, members, self.whole.backend)
        return known


class RecordedGroups:
    """Every process group seen.

    A name reused after ``destroy_process_group`` is distinguished from its first use.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, str | None], RecordedGroup] = {}
        self._uses: dict[str, int] = {}

    def of(self, pg: Any, tensor: torch.Tensor | None) -> RecordedGroup:
        """Return the group of a collective on a tensor: each device type has a backend."""
        device = None if tensor is None else tensor.device
        key = pg.group_name, device.type if device is not None else None
        known = self._known.get(key)
        if known is None or known.of() is not pg:
            known = self._known[key] = RecordedGroup(pg, self._name(key[0], pg, device), device)
        return known

    def _name(self, name: str, pg: Any, device: torch.device | None) -> str:
        if len(self._uses) >= _MAX_NAMED_GROUPS:
            return _OTHER_GROUPS
        first = next(
            (
                group
                for (known, _), group in self._known.items()
                if known == name and group.of() is pg
            ),
            None,
        )
        if first is not None:  # the same group on another kind of device
            backend = _backend_of(pg, device)
            return (
                first.whole.name
                if backend == first.whole.backend
                else f"{first.whole.name} {backend}"
            )
        use = self._uses[name] = self._uses.get(name, 0) + 1
        return name if use == 1 else f"{name} ({use})"

    def __iter__(self) -> Iterator[RecordedGroup]:
        return iter(list(self._known.values()))

    def __len__(self) -> int:
        return len(self._known)


def _ranks_of(pg: Any) -> tuple[int, ...]:
    """Return the global ranks of a group, ascending."""
    try:
        return tuple(sorted(dist.get_process_group_ranks(pg)))
    except Exception:  # made by hand, not by torch.distributed
        reraise_of_handler()
        return tuple(range(pg.size())) if pg.size() == dist.get_world_size() else ()


def _backend_of(pg: Any, device: torch.device | None) -> str:
    """Return the backend of a group: gloo, nccl, ..."""
    try:
        return (
            str(pg._get_backend(device).name()).lower()
            if device is not None
            else str(dist.get_backend(pg))
        )
    except Exception:
        reraise_of_handler()
        return "unknown"


def _first_number(pg: Any) -> int:
    """Return the number of collectives before the tap was attached: 0 for a new group.

    Some count twice, equally on all ranks.
    """
    try:
        return int(pg._get_sequence_number_for_group())
    except Exception:
        reraise_of_handler()
        return 0


def _rank_runs(ranks: Iterable[int]) -> Iterator[tuple[int, int, int]]:
    """Compress ascending numbers into (first, step, count)."""
    rest = list(ranks)
    while rest:
        step = rest[1] - rest[0] if len(rest) > 1 else 1
        count = next((n for n in range(1, len(rest)) if rest[n] - rest[n - 1] != step), len(rest))
        yield rest[0], step, count
        rest = rest[count:]


def _shortened(name: str) -> str:
    """Return a name that fits into a record and stays unique."""
    if len(name.encode()) <= _NAME_BYTES:
        return name
    return f"{name.encode()[: _NAME_BYTES - 17].decode(errors='ignore')}~{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def name_when_imported(
    when_imported: Callable[[str, Callable[[], None]], None], report: ReportHook
) -> None:
    """Report each of them when it is imported, if that means that it communicates."""

    def reporter(name: str, why: str) -> Callable[[], None]:
        said = f"not recorded, {why}: its time counts toward the stage in which it occurs, if any"
        return lambda: report(
            f"communication by {name}", False, Message(said, message.OTHER_LIBRARY)
        )

    alone = ranks.place().world_size == 1
    for module, (name, why) in _UNSEEN_LIBRARIES.items():
        if not (alone and module in _MEANINGLESS_ALONE):
            when_imported(module, reporter(name, why))

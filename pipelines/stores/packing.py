"""Packs a folder of images into a store.

A kill at any moment costs at most the last seconds of work. Before, it is checked that the store
fits on the disk, and that its folder holds nothing else. A complete store is replaced by one that is
made beside it, once that is complete too; until then, nothing changes it.
"""

import errno
import os
import shutil
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from feedline.pipelines.photos import Photos
from feedline.pipelines.stores.destination import (
    FOLDER_KIND,
    REMOVE_FIRST,
    beside,
    present,
    put_back,
    replacement,
    reserved,
)
from feedline.pipelines.stores.image_folder import (
    HIDDEN,
    NO_FILES,
    NOT_IN_CLASS,
    FolderListing,
    ImageContent,
    SourceFile,
    begins_as_image,
    list_folder,
    list_photos,
    read_ahead,
    read_image,
)
from feedline.pipelines.stores.index import (
    INDEX_FILE,
    INDEX_RECORD,
    PATHS_FILE,
    Index,
    Journal,
    LeftOut,
    Progress,
    ReportProgress,
    StoredSample,
    StoreWriter,
    ignore_progress,
)
from feedline.pipelines.stores.kinds import STORE_KINDS, damage, open_packed
from feedline.pipelines.stores.labels import OtherLabels, other_labels
from feedline.pipelines.stores.packed import (
    MANIFEST_FILE,
    PLAN_FILE,
    FileSum,
    PackPlan,
    StoreKind,
    StoreManifest,
    file_crc32,
    how_to_repack,
    sync_folder,
)
from feedline.profiler.errors import DataError, OutputError, SchemaTooNew, StoreDamaged
from feedline.profiler.files import own_folders, owned

_MARGIN_SHARE = 0.02  # what a file system takes for itself on top, and other writers meanwhile
_MARGIN_BYTES = 8 << 20

_SHARD_BYTES = 1 << 30
_MAX_SHARDS = 128  # a reader holds each open: well below the usual limit of 1,024 open files
_CHECKPOINT_BYTES = 32 << 20
_LEAVE_OUT = "remove it, or leave such files out (without --strict; unreadable='skip' in code)"


def _needed_bytes(listing: FolderListing, kind: StoreKind) -> int:
    """Return the bytes that the store will take, at most."""
    total = 0
    for source in listing.sources:
        path_bytes = len(os.fsencode(source.path))
        total += kind.stored_bytes(source.bytes, path_bytes) + INDEX_RECORD.itemsize + path_bytes
    return total


def _complete_already(folder: Path, plan: PackPlan, force: bool) -> StoreManifest | None:
    """Return the manifest of the store to be made, if it is already complete.

    A folder of another kind, such as a run, may have a file of that name too.

    Raises:
        OutputError: it is a store of something else, and ``force`` does not say to replace it.
        StoreDamaged: it is damaged, and ``force`` does not say to replace it.
        SchemaTooNew: a newer feedline packed it.
    """
    listed = own_folders.read_list(folder)
    if not (folder / MANIFEST_FILE).exists() or (listed and listed.kind != FOLDER_KIND):
        return None
    if force:
        with suppress(StoreDamaged):
            StoreManifest.read(folder)  # one of a newer feedline stays all the same
        return None
    manifest = open_packed(folder).manifest
    if manifest.plan.same_data(plan):
        owned.discard(folder, PLAN_FILE)  # a kill between the two last steps leaves it
        return manifest
    raise OutputError(
        f"{folder} already holds a complete store {manifest.plan.unlike(plan)}: name another "
        f"folder, or replace it with -f"
    )


def _see_that_it_goes_on(folder: Path, plan: PackPlan) -> None:
    """Check that what the folder has is a part of this pack. Raises OutputError."""
    before = PackPlan.read(folder)
    begun = own_folders.listed_names(folder) & present(folder)
    if begun and (before is None or not before.same_data(plan)):
        what = before.unlike(plan) if before else "of unknown origin, not of this data"
        raise OutputError(
            f"{folder} holds an unfinished pack {what}: start over with -f, or name another folder"
        )


def _unusable(listing: FolderListing, entry: LeftOut) -> DataError:
    return DataError(
        f"{listing.root}/{entry.path} cannot be packed ({entry.message}): {_LEAVE_OUT}"
    )


def _nothing_to_pack(listing: FolderListing, left_out: list[LeftOut]) -> DataError:
    return DataError(
        f"none of the {len(listing.sources):,} files in {listing.root} can be packed: "
        f"{_named(left_out)}"
    )


@contextmanager
def _as_output_errors(folder: Path, plan: PackPlan, replaces: bool) -> Iterator[None]:
    """Turn errors of writing into errors for the user."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            full = f"{folder}: the disk is full"
            if replaces:
                raise OutputError(
                    f"{full}, and the old store is unchanged", "free some space", REMOVE_FIRST
                ) from error
            again = f"free some space, then continue where it stopped with {plan.command(folder)}"
            raise OutputError(full, again) from error
        part = "start over with -f if it holds part of a store"
        raise OutputError.unwritable(
            folder, error, "name another folder", REMOVE_FIRST if replaces else part
        ) from error


@dataclass(frozen=True)
class Packed:
    """The result of packing.

    Attributes:
        bytes: of the original files.
        stored_bytes: of the store.
        resumed_at: samples that an earlier, killed pack had left whole; ``samples`` where nothing
            was left to do.
        classes: names of those that have a sample.
        empty: of those that have none; they keep their labels.
        lost: labels that the store does not have.
        below, linked: as of the listing.
        old: folders with what is left of replaced stores that could not be removed.
    """

    path: Path
    kind: str
    samples: int
    bytes: int
    stored_bytes: int
    left_out: list[LeftOut]
    resumed_at: int
    classes: list[str]
    empty: list[str]
    lost: list[OtherLabels]
    below: int
    linked: int
    old: list[Path]


def pack(
    source: Path | str | Photos,
    destination: Path | str,
    kind: str,
    *,
    unreadable: str | None = None,
    unlabeled: bool = False,
    force: bool = False,
    read_back: bool = False,
    shard_bytes: int | None = None,
    progress: ReportProgress = ignore_progress,
) -> Packed:
    """Pack a class folder, or a dataset that was scanned.

    After a kill, calling it again continues where it stopped.

    Args:
        source: a folder with one subfolder per class, or ``Photos``.
        destination: the store's folder.
        kind: a key of ``STORE_KINDS``.
        unreadable: ``skip`` leaves out and names files that are unreadable or not images;
            ``refuse`` ends at the first. Default: skip for a folder, refuse for ``Photos``, whose
            positions are the numbers of the samples.
        unlabeled: pack a folder whose labels are not its class folders; the store then does not
            have them.
        force: replace a store that is there, or a part of one. A complete store is removed once the
            new one, which is made beside it, is complete too. Both have to fit on the disk.
        read_back: verify the whole store, before it replaces another one.
        shard_bytes: size at which a new shard is started (default 1 GiB, more if that would make
            over 128 shards; LMDB and RecordIO are one file).
        progress: called with the progress.

    Raises:
        DataError: the folder contains no image; its labels would be lost; or, with ``refuse``, a
            file cannot be used.
        OutputError: the destination contains something else, is not writable or too small, or
            another pack writes to it.
        StoreDamaged: the destination contains a damaged store, or what was read back differs.
        MissingDependency: the library for this format is not installed.
    """
    if kind not in STORE_KINDS or unreadable not in (None, "skip", "refuse"):
        raise ValueError(
            f"pack(kind={kind!r}, unreadable={unreadable!r}): kinds are {', '.join(STORE_KINDS)}; "
            f"unreadable is skip or refuse"
        )
    chosen = STORE_KINDS[kind]
    listing = list_photos(source) if isinstance(source, Photos) else list_folder(Path(source))
    refuse = (unreadable or ("refuse" if listing.checked else "skip")) == "refuse"
    plan, folder = _plan(kind, listing, shard_bytes, refuse), Path(destination)
    put_back(folder)
    replaces = force and (folder / MANIFEST_FILE).exists()
    lost = [] if listing.checked else other_labels(listing)
    old: list[Path] = []
    if not unlabeled and not _begun(folder, plan):
        _see_that_labels_are_kept(listing, lost)
    with _as_output_errors(folder, plan, replaces), ExitStack() as stack:
        if refuse:
            _see_that_nothing_is_left_out(listing)
        manifest = _complete_already(folder, plan, force)
        if manifest is not None:
            if refuse:
                _see_that_no_file_is_missing(folder, manifest, listing)
            resumed_at, place = manifest.samples, folder
        else:
            chosen.library()
            place = beside(folder, "new") if replaces else folder
            total = _needed_bytes(listing, chosen)
            _check_space(place, total, folder if replaces else None)
            stack.enter_context(reserved(folder, listing.root))
            if replaces:
                old = stack.enter_context(replacement(folder))
            elif force:
                _empty_folder(folder)
            resumed_at, manifest = _write_store(place, listing, plan, chosen, total, progress)
        if replaces or read_back:
            _see_that_it_is_whole(place, folder, read_back, progress)
    return _packed(folder, manifest, resumed_at, listing, lost, old)


def _write_store(
    place: Path,
    listing: FolderListing,
    plan: PackPlan,
    chosen: StoreKind,
    total: int,
    progress: ReportProgress,
) -> tuple[int, StoreManifest]:
    """Write a store, or what one that was begun lacks; return the samples it had, and its manifest.

    Args:
        total: bytes of the store, at most.
    """
    _see_that_it_goes_on(place, plan)
    plan.write(place)
    writer = chosen.writer(place, plan.shard_bytes, total)
    packing = _Packing(place, listing, plan, writer, chosen.max_bytes, progress)
    with closing(packing):
        resumed_at = packing.resume()
        packing.run()
        return resumed_at, packing.finish()


def _see_that_it_is_whole(
    place: Path, folder: Path, read_back: bool, progress: ReportProgress
) -> None:
    """Check a store that is in ``place``, and will be in ``folder``. Raises StoreDamaged."""
    with closing(open_packed(place)) as store:
        if read_back and (differs := damage(store, progress)):
            kept = "" if place == folder else ", and the old store is unchanged"
            raise StoreDamaged(
                f"{folder} is not what was packed: {differs}{kept}: {how_to_repack(folder)}"
            )


def _plan(kind: str, listing: FolderListing, shard_bytes: int | None, refuse: bool) -> PackPlan:
    return PackPlan(
        kind,
        str(listing.root),
        listing.fingerprint(),
        len(listing.sources),
        listing.bytes,
        shard_bytes or max(_SHARD_BYTES, listing.bytes // _MAX_SHARDS),
        refuse,
    )


def _begun(folder: Path, plan: PackPlan) -> bool:
    """Tell whether the same data was packed into this folder before, as a whole or in part.

    What it lacks was accepted then.
    """
    before = PackPlan.read(folder)
    if before is None and (folder / MANIFEST_FILE).exists():
        with suppress(StoreDamaged, SchemaTooNew):
            before = StoreManifest.read(folder).plan
    return before is not None and before.same_data(plan)


def _see_that_labels_are_kept(listing: FolderListing, others: list[OtherLabels]) -> None:
    """Check that the labels are the class folders. Raises DataError."""
    lost = [labels for labels in others if labels.lost]
    if lost:
        messages = "; ".join(labels.message for labels in lost)
        raise DataError(
            f"{listing.root}: the store would not have its labels: {messages}. The label of a "
            f"sample is the "
            f"folder that lies directly in {listing.root}: {lost[0].fix}, or pack without the "
            f"labels (--unlabeled; unlabeled=True in code)"
        )


def _see_that_nothing_is_left_out(listing: FolderListing) -> None:
    """Check that no file is known to be unusable. Raises DataError.

    Nor may an image lie beside the class folders; other files there are no images.
    """
    for entry in listing.left_out:
        loose = entry.message == NOT_IN_CLASS and not begins_as_image(
            listing.root, SourceFile(entry.path, 0, 0, 0)
        )
        if not loose and entry.message not in (NO_FILES, HIDDEN):
            raise _unusable(listing, entry)


def _see_that_no_file_is_missing(folder: Path, done: StoreManifest, listing: FolderListing) -> None:
    """Check that a complete store has all files of its data. Raises DataError."""
    files = {source.path for source in listing.sources}
    for entry in done.left_out:
        if entry.path in files:
            raise DataError(
                f"{folder} is complete without {listing.root}/{entry.path} ({entry.message}): "
                f"repair or remove that file and pack again with -f, or leave it out (without "
                f"--strict; unreadable='skip' in code)"
            )


class _Packing:
    """A pack in progress: the journal, the writer, and the files left out."""

    def __init__(
        self,
        folder: Path,
        listing: FolderListing,
        plan: PackPlan,
        writer: StoreWriter,
        max_bytes: int,
        progress: ReportProgress,
    ) -> None:
        self._folder, self._listing, self._plan = folder, listing, plan
        self._writer, self._max_bytes, self._progress = writer, max_bytes, progress
        self._journal: Journal | None = None
        self._left_out = list(listing.left_out)
        self._next = 0  # place in the listing
        self._bytes = 0  # of values

    def resume(self) -> int:
        """Keep the complete samples of an earlier pack; returns their number."""
        before = (
            Index.load(self._folder)
            if (self._folder / INDEX_FILE).exists() and (self._folder / PATHS_FILE).exists()
            else Index.empty()
        )
        if len(before):
            self._progress(Progress("checking", 0, self._plan.files, 0))
        keep = before.head(self._writer.recover(before))
        self._journal = Journal(self._folder, keep)
        self._bytes = int(keep.records["bytes"].sum())
        self._next = int(keep.records["source"][-1]) + 1 if len(keep) else 0
        packed = set(keep.records["source"].tolist())
        for number in sorted(set(range(self._next)) - packed):
            source = self._listing.sources[number]
            again = read_image(self._listing, source, self._max_bytes)
            self._leave_out(
                again
                if isinstance(again, LeftOut)
                else LeftOut(source.path, "could not be read when it was packed")
            )
        return len(keep)

    def run(self) -> None:
        """Pack the remaining files."""
        journal, since = self._journal, 0
        assert journal is not None
        with closing(read_ahead(self._listing, self._next, self._max_bytes)) as files:
            for number, content in files:
                if isinstance(content, LeftOut):
                    self._leave_out(content)
                else:
                    self._add(journal, number, content)
                    since += len(content.value)
                    if since >= _CHECKPOINT_BYTES:
                        since = 0
                        self._checkpoint(journal)
                self._progress(Progress("packing", number + 1, self._plan.files, self._bytes))
        self._checkpoint(journal)

    def finish(self) -> StoreManifest:
        """Write the side files and, last of all, the manifest."""
        index = Index.load(self._folder)
        if not len(index):
            _empty_folder(self._folder)
            raise _nothing_to_pack(self._listing, self._left_out)
        names = self._writer.finish(index)
        sums = {name: _summed(self._folder / name) for name in (INDEX_FILE, PATHS_FILE, *names)}
        sync_folder(self._folder)
        manifest = StoreManifest(
            self._plan, len(index), self._bytes, self._listing.classes, sums, self._left_out
        )
        manifest.write(self._folder)
        owned.discard(self._folder, PLAN_FILE)
        return manifest

    def close(self) -> None:
        try:
            self._writer.close()
        finally:
            if self._journal is not None:
                self._journal.close()

    def _add(self, journal: Journal, number: int, image: ImageContent) -> None:
        source = self._listing.sources[number]
        place = self._writer.add(
            StoredSample(journal.count, image.value, source.label, source.path, image.ending)
        )
        journal.add(
            place,
            len(image.value),
            zlib.crc32(image.value),
            source.label,
            number,
            image.ending,
            source.path,
        )
        self._bytes += len(image.value)

    def _checkpoint(self, journal: Journal) -> None:
        # before the data: a sample that only the data has could not be distinguished from a
        # stranger's
        journal.flush()
        self._writer.checkpoint()

    def _leave_out(self, entry: LeftOut) -> None:
        if self._plan.refuse:
            raise _unusable(self._listing, entry)
        self._left_out.append(entry)


def _named(left_out: list[LeftOut], most: int = 5) -> str:
    """Name the first few of the files left out, and the number of the others."""
    first = "; ".join(f"{entry.path}: {entry.message}" for entry in left_out[:most])
    return first + (f"; and {len(left_out) - most:,} more" if len(left_out) > most else "")


def _packed(
    folder: Path,
    manifest: StoreManifest,
    resumed_at: int,
    listing: FolderListing,
    lost: list[OtherLabels],
    old: list[Path],
) -> Packed:
    """Return the result of packing according to a manifest."""
    stored = sum(entry.bytes for entry in manifest.files.values())
    used = set(Index.load(folder).records["label"].tolist())
    classes, empty = (
        [name for label, name in enumerate(manifest.classes) if (label in used) is has]
        for has in (True, False)
    )
    return Packed(
        folder,
        manifest.plan.kind,
        manifest.samples,
        manifest.bytes,
        stored,
        manifest.left_out,
        resumed_at,
        classes,
        empty,
        lost,
        listing.below,
        listing.linked,
        old,
    )


def _summed(path: Path) -> FileSum:
    """Return the length of a file, and its checksum unless it is a shard.

    The samples of a shard have their own.
    """
    shard = path.name.startswith("data-") and path.suffix != ".idx"
    return FileSum(path.stat().st_size, None if shard else file_crc32(path))


def _empty_folder(folder: Path) -> None:
    """Remove only the files of a store, the manifest first. Raises OSError."""
    for name in sorted(
        own_folders.listed_names(folder), key=lambda name: (name != MANIFEST_FILE, name)
    ):
        owned.discard(folder, name)


def _check_space(place: Path, total: int, replaced: Path | None = None) -> None:
    """Check that a store of ``total`` bytes fits.

    Existing files in ``place`` count: they are continued or removed before.

    Args:
        place: the folder in which it is made.
        total: its size in bytes, at most.
        replaced: the store whose place it takes, which stays until then.

    Raises:
        OutputError: it does not.
    """
    parent = place.absolute()
    while not parent.exists():
        parent = parent.parent
    already = sum(file.stat().st_blocks * 512 for file in place.iterdir()) if place.is_dir() else 0
    wants = max(0, total - already)
    wants_free = wants + int(wants * _MARGIN_SHARE) + _MARGIN_BYTES
    free = shutil.disk_usage(parent).free
    if free < wants_free:
        raise OutputError(
            f"{replaced or place} needs {_megabytes(wants)} more ({_megabytes(wants_free)} with a "
            f"margin), but {parent} has only {_megabytes(free)} free",
            "free some space",
            REMOVE_FIRST if replaced else "choose a folder on another disk",
        )


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"

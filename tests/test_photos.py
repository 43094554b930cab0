"""Looking at a folder of images."""

import multiprocessing
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from skimage import data

from feedline.pipelines import photos as photos_module
from feedline.pipelines.photos import Photos, check_image, scan, scan_once
from feedline.profiler.errors import DataError, OutputError


@pytest.fixture(scope="module")
def photograph() -> Image.Image:
    return Image.fromarray(data.astronaut()).resize((120, 90))


@pytest.fixture
def root(tmp_path: Path, photograph: Image.Image) -> Path:
    """Two classes of two images each."""
    for name in ("a/1.jpg", "a/2.jpg", "b/1.jpg", "b/2.jpg"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        photograph.save(path)
    return tmp_path


def sixteen_bit_rgb_png(path: Path) -> None:
    """Pillow cannot write one: made of its chunks."""
    import struct
    import zlib

    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content))
            + kind
            + content
            + struct.pack(">I", zlib.crc32(kind + content))
        )

    rows = b"".join(b"\0" + bytes(range(48)) for _ in range(8))
    header = struct.pack(">IIBBBBB", 8, 8, 16, 2, 0, 0, 0)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def sixteen_bit_gray_png(path: Path) -> None:
    Image.fromarray(np.arange(64 * 64, dtype=np.uint16).reshape(64, 64)).save(path)


def sixteen_bit_ppm(path: Path) -> None:
    path.write_bytes(b"P6 4 4 65535\n" + bytes(4 * 4 * 6))


def truncated(path: Path, photograph: Image.Image) -> None:
    photograph.save(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def animated(path: Path, photograph: Image.Image) -> None:
    photograph.save(path, save_all=True, append_images=[photograph.rotate(90)])


BAD = {
    "zero_bytes": ("z.jpg", lambda path, photograph: path.touch()),
    "truncated": ("z.jpg", truncated),
    "truncated png": ("z.png", truncated),
    "corrupt": ("z.jpg", lambda path, photograph: path.write_text("<html>404 not found</html>")),
    "corrupt header": (
        "z.jpg",
        lambda path, photograph: path.write_bytes(b"\xff\xd8\xff\xe0" + bytes(200)),
    ),
    "cmyk": ("z.jpg", lambda path, photograph: photograph.convert("CMYK").save(path)),
    "16_bit": ("z.png", lambda path, photograph: sixteen_bit_gray_png(path)),
    "16_bit rgb": ("z.png", lambda path, photograph: sixteen_bit_rgb_png(path)),
    "16_bit ppm": ("z.ppm", lambda path, photograph: sixteen_bit_ppm(path)),
    "animated": ("z.gif", animated),
    "animated png": ("z.png", animated),
    "animated webp": ("z.webp", animated),
    "other_format": ("z.jpg", lambda path, photograph: photograph.save(path, "GIF")),
    "other_format lab": ("z.tiff", lambda path, photograph: photograph.convert("YCbCr").save(path)),
}


@pytest.mark.parametrize("what", BAD)
def test_a_file_that_loaders_would_not_read_alike_is_named_and_left_out(what, root, photograph):
    name, write = BAD[what]
    write(root / "a" / name, photograph)

    found = scan(root)

    assert len(found) == 4
    (problem,) = found.problems
    assert problem.path == str(root / "a" / name) and problem.left_out
    assert problem.kind == what.split()[0]
    assert problem.message


def test_an_image_turned_by_exif_is_remarked_and_kept(root, photograph):
    exif = Image.Exif()
    exif[0x0112] = 6
    photograph.save(root / "a" / "z.jpg", exif=exif)

    found = scan(root)

    (problem,) = found.problems
    assert (problem.kind, problem.left_out, len(found)) == ("exif_rotated", False, 5)
    assert (found.photos[2].width, found.photos[2].height) == photograph.size


def test_an_image_with_the_wrong_ending_is_remarked_and_kept(root, photograph):
    photograph.save(root / "a" / "z.jpg", "PNG")

    found = scan(root)

    (problem,) = found.problems
    assert (problem.kind, problem.left_out, found.photos[2].format) == ("misnamed", False, "PNG")


def test_palette_alpha_and_gray_are_kept_without_a_word(root, photograph):
    for mode in ("P", "L", "RGBA", "LA", "1"):
        photograph.convert(mode).save(root / "a" / f"{mode}.png")
    photograph.convert("L").save(root / "a" / "gray.jpg")
    photograph.save(root / "b" / "large.JPG", quality=95)

    found = scan(root)

    assert (len(found), found.problems) == (11, [])
    assert {photo.mode for photo in found.photos} == {"RGB", "P", "L", "RGBA", "LA", "1"}


def test_labels_and_order_are_those_of_image_folder(root, photograph):
    from torchvision.datasets import ImageFolder

    (root / "a" / "below").mkdir()
    photograph.save(root / "a" / "below" / "0.png")
    (root / "a" / "notes.txt").write_text("no image")

    found, theirs = scan(root), ImageFolder(root)

    assert [(photo.path, photo.label) for photo in found.photos] == theirs.samples
    assert found.classes == theirs.classes


def test_a_link_to_a_folder_above_is_not_followed(root):
    (root / "a" / "again").symlink_to(".")

    assert len(scan(root)) == 4


def test_a_class_without_a_file_is_remarked_and_keeps_its_label(root):
    (root / "aa").mkdir()

    found = scan(root)

    assert found.classes == ["a", "aa", "b"]
    assert [photo.label for photo in found.photos] == [0, 0, 2, 2]
    (problem,) = found.problems
    assert (problem.kind, problem.path, problem.left_out) == (
        "empty_class",
        str(root / "aa"),
        False,
    )


def test_a_class_whose_files_are_all_left_out_is_remarked(root):
    for path in (root / "a").iterdir():
        path.write_bytes(b"")

    kinds = [problem.kind for problem in scan(root).problems]

    assert kinds == ["zero_bytes", "zero_bytes", "empty_class"]


def test_a_flat_folder_is_one_class(root):
    found = scan(root / "a")

    assert (found.classes, [photo.label for photo in found.photos]) == (["a"], [0, 0])


def test_a_limit_takes_of_every_class_and_follows_its_seed(tmp_path, photograph):
    for number in range(40):
        path = tmp_path / ("few" if number < 4 else "many") / f"{number:02}.jpg"
        path.parent.mkdir(exist_ok=True)
        photograph.save(path)

    def chosen(seed: int, limit: int = 8) -> list[str]:
        found = scan(tmp_path, limit, seed)
        assert found.problems == []
        return [Path(photo.path).name for photo in found.photos]

    names = chosen(1)
    assert len(names) == 8 and sum(int(name[:2]) < 4 for name in names) == 4
    assert chosen(1) == names != chosen(2)
    assert len(chosen(1, 20)) == 20
    assert len(chosen(1, 100)) == 40


def test_a_limit_is_filled_with_usable_images(root):
    (root / "a" / "1.jpg").write_bytes(b"")

    found: Photos = scan(root, limit=3)

    assert len(found) == 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: None, "does not exist"),
        (lambda folder: folder.write_text(""), "is a file"),
        (lambda folder: folder.mkdir(), "has no images"),
        (lambda folder: (folder / "a").mkdir(parents=True), "has no images"),
        (
            lambda folder: (folder.mkdir(), (folder / "a.jpg").touch()),
            "no usable image (.*a.jpg: the file is empty)",
        ),
    ],
)
def test_a_folder_without_a_usable_image_is_an_error_with_the_way_out(make, message, tmp_path):
    make(tmp_path / "images")

    with pytest.raises(DataError, match=f"images .*{message}.*: give an image folder"):
        scan(tmp_path / "images")


def test_a_link_to_nothing_is_named(root):
    (root / "a" / "z.jpg").symlink_to(root / "a" / "nothing.jpg")

    (problem,) = scan(root).problems

    assert (problem.kind, problem.left_out) == ("corrupt", True)
    assert "No such file" in problem.message


def test_how_many_files_are_checked_is_told(root):
    (root / "a" / "3.jpg").write_bytes(b"no image")
    told = []

    scan(root, tell=lambda done, of: told.append((done, of)))

    assert told == [(number, 5) for number in range(1, 6)]


@pytest.fixture
def odd(root: Path) -> Path:
    """Images, and files of which a scan says something."""
    (root / "data" / "empty class").mkdir(parents=True)
    for name in ("a", "b"):
        (root / name).rename(root / "data" / name)
    (root / "data" / "a" / os.fsdecode(b"\xfe.jpg")).touch()
    Image.new("CMYK", (64, 64)).save(root / "data" / "b" / "print.jpg")
    return root / "data"


def test_a_scan_that_is_kept_is_the_same_and_decodes_nothing_again(odd, tmp_path, monkeypatch):
    kept = tmp_path / "photos.json"

    first = scan_once(odd, kept)
    monkeypatch.delattr(photos_module, "check_image")

    assert scan_once(odd, kept) == first
    monkeypatch.undo()
    assert first == scan(odd) and len(first.problems) == 3


def test_a_kept_scan_is_made_again_once_the_data_has_changed_or_the_file_was_cut_off(
    odd, tmp_path, photograph
):
    kept = tmp_path / "photos.json"
    scan_once(odd, kept)

    photograph.save(odd / "b" / "3.jpg")
    assert scan_once(odd, kept) == scan(odd)
    (odd / "a" / "1.jpg").write_bytes(b"")
    assert scan_once(odd, kept) == scan(odd)
    (odd / "a" / "1.jpg").unlink()
    assert scan_once(odd, kept) == scan(odd)
    whole = kept.read_bytes()
    for length in (0, 5, len(whole) // 2):
        kept.write_bytes(whole[:length])
        assert scan_once(odd, kept) == scan(odd) and kept.read_bytes() == whole


def test_a_file_that_no_scan_wrote_is_left_alone(root, tmp_path):
    mine = tmp_path / "mine.json"
    mine.write_text('{"mine": 1}')

    with pytest.raises(OutputError, match=r"mine\.json was not written by feedline"):
        scan_once(root, mine)
    with pytest.raises(OutputError, match="cannot write .*photos.json"):
        scan_once(root, tmp_path / "no folder" / "photos.json")
    assert mine.read_text() == '{"mine": 1}'


def test_of_processes_that_begin_together_one_decodes(odd, tmp_path):
    def begin(barrier, at: Path) -> None:
        def noted(path: Path):
            with open(at, "a") as file:
                file.write("x")
            return check_image(path)

        photos_module.check_image = noted  # in this process alone
        barrier.wait()
        assert len(scan_once(odd, tmp_path / "photos.json")) == 4

    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(3)
    ranks = [context.Process(target=begin, args=(barrier, tmp_path / "decoded")) for _ in range(3)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()

    assert [rank.exitcode for rank in ranks] == [0, 0, 0]
    assert (tmp_path / "decoded").read_text() == "x" * 6

"""Labels that are not the class folders: refused, or told of, but never lost without a word."""

import csv
import json
import shutil

import pytest
from planted import photos

from feedline.__main__ import main
from feedline.pipelines.stores import open_store, pack
from feedline.profiler.errors import DataError

COUNT = 20


@pytest.fixture(scope="module")
def one_class(tmp_path_factory):
    """Images in one folder, images/000.jpg to 019.jpg."""
    root = tmp_path_factory.mktemp("one") / "photos"
    photos.write(root / "images", 64, 48, COUNT)
    return root


@pytest.fixture
def flat(one_class, tmp_path):
    return shutil.copytree(one_class, tmp_path / "data")


def names(root):
    return sorted(path.name for path in (root / "images").glob("*.jpg"))


def table(root, path="labels.csv", by=lambda name: name, column="class"):
    """Ten classes, by name."""
    with open(root / path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["file", "width", column])
        writer.writerows(
            [by(name), 64, f"class {number % 10}"] for number, name in enumerate(names(root))
        )


def as_json(root):
    (root / "labels.json").write_text(
        json.dumps(
            [
                {"image": f"images/{name}", "label": number}
                for number, name in enumerate(names(root))
            ]
        )
    )


def as_text(root):
    (root / "train.txt").write_text(
        "".join(f"images/{name} {number % 10}\n" for number, name in enumerate(names(root)))
    )


def as_tsv_of_stems(root):
    for name in names(root):
        (root / "images" / name).rename(root / "images" / f"image-{name}")
    (root / "labels.tsv").write_text(
        "id\tlabel\n"
        + "".join(f"{name.removesuffix('.jpg')}\t{name[-5]}\n" for name in names(root))
    )


def a_file_per_image(root):
    for name in names(root):
        (root / "images" / name).with_suffix(".txt").write_text("0 0.5 0.5 0.1 0.1")


def a_folder_of_annotations(root):
    (root / "annotations").mkdir()
    for name in names(root):
        (root / "annotations" / name).with_suffix(".xml").write_text("<annotation/>")


def a_folder_of_masks(root):
    shutil.copytree(root / "images", root / "masks")


def masks_with_a_suffix(root):
    (root / "masks").mkdir()
    for name in names(root):
        photo = root / "images" / name
        shutil.copy(photo, root / "masks" / f"{photo.stem}_mask.png")


def classes_one_folder_too_low(root):
    for number, name in enumerate(names(root)):
        (root / "images" / f"class-{number % 10}").mkdir(exist_ok=True)
        (root / "images" / name).rename(root / "images" / f"class-{number % 10}" / name)


def classes_below_a_split(root):
    classes_one_folder_too_low(root)
    (root / "images").rename(root / "train")
    shutil.copytree(root / "train", root / "val")


KINDS = {
    table: "labels.csv names 20 images, with 10 different values of 'class'",
    as_json: "labels.json names 20 images",
    as_text: "train.txt names 20 images",
    as_tsv_of_stems: "labels.tsv names 20 images, with 10 different values of 'label'",
    a_file_per_image: "20 .txt files have an image's name",
    a_folder_of_annotations: "20 .xml files have an image's name",
    a_folder_of_masks: "masks would become a class of its own",
    masks_with_a_suffix: "masks would become a class of its own",
    classes_one_folder_too_low: "images has 10 folders, which may be the classes",
    classes_below_a_split: "its folders are the parts of a split, not classes (train, val)",
}


@pytest.mark.parametrize("spoil", KINDS)
def test_labels_that_a_store_would_not_have_are_named_before_anything_is_packed(
    spoil, flat, tmp_path
):
    spoil(flat)

    with pytest.raises(DataError) as refused:
        pack(flat, tmp_path / "store", "tar")

    assert KINDS[spoil] in str(refused.value) and "--unlabeled" in str(refused.value)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("spoil", KINDS)
def test_a_store_without_them_is_packed_where_that_is_accepted_and_says_so(
    spoil, flat, tmp_path, capsys
):
    spoil(flat)

    assert main(["pack", str(flat), "-o", str(tmp_path / "store"), "--kind", "tar"]) == 66
    capsys.readouterr()
    assert (
        main(
            [
                "pack",
                str(flat),
                "-o",
                str(tmp_path / "store"),
                "--kind",
                "tar",
                "--verify",
                "--unlabeled",
            ]
        )
        == 0
    )
    assert f"labels not packed: {KINDS[spoil]}" in capsys.readouterr().out
    assert (
        main(["pack", str(flat), "-o", str(tmp_path / "store"), "--kind", "tar", "--verify"]) == 0
    )  # it was accepted before
    assert f"labels not packed: {KINDS[spoil]}" in capsys.readouterr().out


def test_an_interrupted_pack_goes_on_without_being_asked_again(flat, tmp_path, monkeypatch):
    table(flat)

    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("feedline.pipelines.stores.image_folder.read_image", interrupt)
        pack(flat, tmp_path / "store", "tar", unlabeled=True)

    assert pack(flat, tmp_path / "store", "tar").samples == COUNT


def test_class_folders_with_a_table_that_says_the_same_are_packed_without_a_word(flat, tmp_path):
    classes_one_folder_too_low(flat)
    with open(flat / "images" / "labels.csv", "w", newline="") as file:
        csv.writer(file).writerows(
            [
                ["file", "label"],
                *([path.name, path.parent.name] for path in sorted(flat.rglob("*.jpg"))),
            ]
        )

    done = pack(flat / "images", tmp_path / "store", "tar")

    assert (len(done.classes), done.lost) == (10, [])


def test_class_folders_with_a_table_of_other_things_are_packed_and_it_is_named(flat, tmp_path):
    classes_one_folder_too_low(flat)
    with open(flat / "images" / "scores.csv", "w", newline="") as file:
        csv.writer(file).writerows(
            [
                ["file", "score"],
                *([path.name, number] for number, path in enumerate(sorted(flat.rglob("*.jpg")))),
            ]
        )

    (other,) = pack(flat / "images", tmp_path / "store", "tar").lost

    assert (other.lost, other.message) == (
        False,
        "scores.csv names 20 images, with 20 different values of 'score'",
    )


@pytest.mark.parametrize("name", ["mask", "label"])
@pytest.mark.parametrize("renamed", [True, False], ids=["names", "numbers"])
def test_a_class_may_be_called_as_masks_are(name, renamed, flat, tmp_path):
    """Its names are not those of the others; or, where each class is numbered, its count is not."""
    (flat / "images").rename(flat / f"no_{name}")
    (flat / name).mkdir()
    photo = next((flat / f"no_{name}").glob("*.jpg"))
    for number in range(COUNT if renamed else COUNT // 2):
        shutil.copy(photo, flat / name / f"{'worn-' * renamed}{number:03d}.jpg")

    done = pack(flat, tmp_path / "store", "tar")

    assert (done.classes, done.lost) == ([name, f"no_{name}"], [])


def test_tables_that_name_no_image_are_no_labels(flat, tmp_path):
    (flat / "readme.txt").write_text("20 photographs, 64 by 48 pixels, numbered 0 to 19")
    (flat / "sizes.csv").write_text(
        "number,width\n" + "".join(f"{number},64\n" for number in range(COUNT))
    )

    assert pack(flat, tmp_path / "store", "tar").lost == []


def test_one_class_is_told_and_so_are_empty_ones_folders_below_and_links(flat, tmp_path, capsys):
    (flat / "none").mkdir()
    (flat / "images" / "more").mkdir()
    (flat / "images" / "019.jpg").rename(flat / "images" / "more" / "019.jpg")
    (flat / "images" / "again.jpg").symlink_to("000.jpg")
    for number in range(3):
        (flat / "images" / f"notes-{number}.doc").write_text("no image")

    assert main(["pack", str(flat), "-o", str(tmp_path / "store"), "--kind", "tar"]) == 0

    out = capsys.readouterr().out
    assert "labels: none, all images are of one class (images)" in out
    assert "classes without an image: 1 (none); they keep their labels" in out
    assert "1 files in folders below a class folder take its label" not in out
    assert "1 file in a folder below a class folder takes its label" in out
    assert "1 file is a symbolic link; what it leads to is packed" in out
    assert "left out: 4 (3 not an image, 1 a class without files)" in out


def test_bytes_keep_orientation_profile_and_further_frames(flat, tmp_path):
    from PIL import Image, ImageCms

    turned, many = Image.new("RGB", (8, 6)), flat / "images" / "many.gif"
    exif = turned.getexif()
    exif[0x0112] = 6
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    turned.save(flat / "images" / "turned.jpg", exif=exif, icc_profile=profile)
    turned.save(many, save_all=True, append_images=[Image.new("RGB", (8, 6), "red")])

    pack(flat, tmp_path / "store", "tar")

    store = open_store(tmp_path / "store")
    kept = {store.name(number): store[number][0] for number in range(len(store))}
    assert kept["images/turned.jpg"] == (flat / "images" / "turned.jpg").read_bytes()
    assert kept["images/many.gif"] == many.read_bytes()

"""Comparing loaders: from the command line to files, and what the comparison makes of faults."""

import html
import json
import mmap
import re
import subprocess
import sys
import time
import tracemalloc
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from loaders.conftest import COUNT, picture
from torch import nn

from feedline.__main__ import main
from feedline.cli import outputs
from feedline.cli.compare import text
from feedline.pipelines.compare import loader_timing, side_by_side
from feedline.pipelines.compare.comparison_result import Epoch, LoaderRow
from feedline.pipelines.compare.loader_timing import _tree_cpu_s
from feedline.pipelines.compare.side_by_side import ComparisonPlan, ComparisonRun, compare_loaders
from feedline.pipelines.loaders import LOADERS, pillow_loaders, simplejpeg_loaders
from feedline.pipelines.loaders.protocol import LoadedBatch, LoaderKind
from feedline.pipelines.loaders.workers import WorkerLoader
from feedline.pipelines.names import LOADER_NAMES
from feedline.pipelines.photos import Photo, Photos
from feedline.pipelines.probes import read_speed
from feedline.pipelines.translate.difference import compare_libraries
from feedline.pipelines.translate.recipe import read_recipe
from feedline.profiler.ceilings import Ceilings
from feedline.profiler.errors import DataError, OutputError, UserCodeError

QUICK = ComparisonPlan(rounds=2, part_s=0.05)
ONLY = "pillow-v1,simplejpeg-v2,dali-cpu,dali-gpu,synthetic"
SYNTHETIC = next(kind for kind in LOADERS if kind.name == "synthetic")


def test_all_loaders_are_among_the_names_that_the_help_lists():
    assert LOADER_NAMES == tuple(kind.name for kind in LOADERS)


@pytest.fixture(scope="module")
def forty(tmp_path_factory):
    """40 images, and one that is none."""
    root = tmp_path_factory.mktemp("forty")
    for number in range(40):
        (root / f"class-{number % 3}").mkdir(exist_ok=True)
        picture(number).save(root / f"class-{number % 3}" / f"{number:02}.jpg", quality=95)
    (root / "class-0" / "broken.jpg").write_bytes(b"no image")
    return root


@pytest.fixture(scope="module")
def compared(forty, tmp_path_factory):
    """What the command line wrote; (folder, standard output, standard error)."""
    import contextlib
    import io

    out, said, told = tmp_path_factory.mktemp("out"), io.StringIO(), io.StringIO()
    before, side_by_side.FULL_COMPARISON = side_by_side.FULL_COMPARISON, QUICK
    every_s, outputs._LOG_EVERY_S = outputs._LOG_EVERY_S, 0.0
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(told):
            code = main(
                [
                    "compare",
                    "--data",
                    str(forty),
                    "--loaders",
                    ONLY,
                    "--workers",
                    "1",
                    "--batch-size",
                    "8",
                    "-o",
                    str(out),
                    "--json",
                    str(out / "more.json"),
                ]
            )
    finally:
        side_by_side.FULL_COMPARISON = before
        outputs._LOG_EVERY_S = every_s
    assert code == 0
    return out, said.getvalue(), told.getvalue()


def test_images_in_memory_are_not_said_to_be_read_cold():
    task = SimpleNamespace(photos=SimpleNamespace(root=Path("/dev/shm")))
    plan = replace(side_by_side.FULL_COMPARISON, cold=True)

    with pytest.raises(DataError, match=r"/dev/shm is in memory \(tmpfs\)"):
        side_by_side.compare_loaders(side_by_side.ComparisonRun(task, plan=plan))


@pytest.mark.long
def test_the_command_writes_the_comparison_as_json(compared):
    found = json.loads((compared[0] / "compare.json").read_text())

    assert found["schema_version"] == 1 and found["photos"] == 40 and found["cache"] == "warm"
    assert [row["name"] for row in found["loaders"]] == [
        "synthetic",
        "dali-gpu",
        "dali-cpu",
        "simplejpeg-v2",
        "pillow-v1",
    ]
    for row in found["loaders"]:
        if row["name"] == "dali-gpu":
            assert "CUDA" in row["why"] and row["samples_per_s"] is None
            continue
        assert row["why"] == "" and row["epoch"]["samples"] == 40 and row["epoch"]["wrong"] == ""
        assert len(row["parts"]) == 2 and row["samples_per_s"] > 0 and row["cpu_s"] > 0
    assert found == json.loads((compared[0] / "more.json").read_text())


def test_steps_of_the_loaders_are_timed_where_they_can_be(compared):
    rows = {
        row["name"]: row
        for row in json.loads((compared[0] / "compare.json").read_text())["loaders"]
    }

    for name in ("pillow-v1", "simplejpeg-v2"):
        stages = rows[name]["stages"]
        assert all(value > 0 for value in stages.values())
        assert 0.2 * rows[name]["cpu_s"] < sum(stages.values()) < 5 * rows[name]["cpu_s"]
    assert rows["dali-cpu"]["stages"] is None and "DALI" in rows["dali-cpu"]["stages_why"]


def test_every_operation_is_compared_in_every_library(compared):
    found = json.loads((compared[0] / "compare.json").read_text())

    rows = {(one["operation"], one["backend"]): one for one in found["operations"]}
    for backend in ("v2", "albumentations", "DALI CPU"):
        assert 0 <= rows["whole recipe", backend]["mean"] < 3, "grey levels"
        assert rows["RandomHorizontalFlip", backend]["max"] <= (
            0 if backend != "DALI CPU" else 12
        ), "DALI decodes itself"
    assert "needs a CUDA device" in rows["whole recipe", "DALI GPU"]["says"]
    assert (
        "RandomResizedCrop" in compared[1]
        and "Gray-level difference from torchvision" in compared[1]
    )


def test_two_operations_of_one_name_have_a_row_each(photos):
    from torchvision import transforms as T

    twice = [T.RandomApply([T.ColorJitter(0.4)]), T.RandomApply([T.GaussianBlur(3)])]

    table = text._operation_table(compare_libraries(read_recipe(twice), photos, 2))

    assert {row[0] for row in table.rows} == {
        "RandomApply", "RandomApply 2", "decoding", "whole recipe",
    }  # fmt: skip


def test_a_file_that_is_no_image_is_counted_and_named(compared):
    assert "Files left out\n- corrupt: 1 (" in compared[1] and "broken.jpg" in compared[1]
    (paths,) = json.loads((compared[0] / "compare.json").read_text())["left_out"].values()
    assert [path.endswith("broken.jpg") for path in paths] == [True]


def test_what_is_printed_names_every_loader_and_ends_with_a_choice(compared):
    assert all(name in compared[1] for name in ONLY.split(","))
    assert "dali-gpu: not measured: needs a CUDA device" in compared[1]
    assert "Use " in compared[1] or "Keep " in compared[1]


def test_a_loader_to_take_comes_with_the_lines_to_paste(compared):
    found, page = (
        json.loads((compared[0] / "compare.json").read_text()),
        (compared[0] / "compare.html").read_text(),
    )

    assert (
        (found["takes"] != "")
        == found["choice"].startswith("Use ")
        == ("ComparedLoader(" in compared[1])
        == ("ComparedLoader(" in page)
    )
    printed = [
        line[4:]
        for line in compared[1]
        .partition("These lines run as they are, from this folder:\n")[2]
        .splitlines()
    ]
    assert printed[: len(found["lines"])] == found["lines"]
    assert "\n".join(found["lines"]) in html.unescape(page)
    assert not found["takes"] or any(repr(found["takes"]) in line for line in found["lines"])


def test_what_is_said_meanwhile_counts_the_loaders_that_run_and_reaches_its_end(compared):
    told = compared[2]

    assert "comparing 4 loaders takes at least 400 ms, after an epoch of each" in told
    assert told.index("checking the images (41/41)") < told.index("comparing 4 loaders")
    steps = re.findall(r"\((\d+)/(\d+)\)", told.partition("comparing 4 loaders")[2])
    assert steps == [(str(number), str(len(steps))) for number in range(1, len(steps) + 1)]


def test_the_page_is_whole_and_asks_nobody(compared):
    page = (compared[0] / "compare.html").read_text()

    assert page.count("<svg") == 2 and "simplejpeg-v2" in page and "broken.jpg" in page
    assert "http://" not in page and "https://" not in page and "src=" not in page


def test_ceilings_for_the_roofline_have_one_line_a_loader(compared):
    found = Ceilings.read(compared[0] / "ceilings.json")

    assert {one.part for one in found.ceilings} == {"loader"}
    assert {one.name.removeprefix("loader/") for one in found.ceilings if one.value} == {
        "pillow-v1",
        "simplejpeg-v2",
        "dali-cpu",
        "synthetic",
    }
    assert all(one.low <= one.value <= one.high for one in found.ceilings if one.value)


def test_the_benchmark_file_has_the_fields_of_pytest_benchmark(compared):
    found = json.loads((compared[0] / "benchmark.json").read_text())

    assert {"benchmarks", "machine_info", "commit_info", "datetime", "version"} <= set(found)
    for one in found["benchmarks"]:
        stats = one["stats"]
        assert stats["rounds"] == len(stats["data"]) == 2
        assert stats["min"] <= stats["q1"] <= stats["median"] <= stats["q3"] <= stats["max"]
        assert stats["ops"] == pytest.approx(1 / stats["mean"])


def test_an_older_comparison_is_not_overwritten(compared, forty, capsys):
    assert main(["compare", "--data", str(forty), "-o", str(compared[0])]) == OutputError.exit_code
    assert "already exists" in capsys.readouterr().err


def test_an_unknown_loader_is_answered_with_the_list(forty, tmp_path, capsys):
    assert main(["compare", "--data", str(forty), "-o", str(tmp_path), "--loaders", "dali"]) == 2
    assert "dali-cpu" in capsys.readouterr().err


class Faulty:
    """A loader whose images or labels are wrong in some way."""

    samples = "made up"
    missing = ()

    def __init__(self, task, fault):
        self.inner, self.fault = simplejpeg_loaders._make_v2(task), fault

    def epoch(self, number):
        for at, batch in enumerate(self.inner.epoch(number)):
            if self.fault == "raises" and at == 2:
                raise RuntimeError("the third batch is lost")
            if self.fault == "a label twice" and at == 1:
                batch = replace(batch, index=torch.cat([batch.index[:-1], batch.index[:1]]))
            if self.fault == "mirrored":
                batch = replace(batch, images=batch.images.flip(-1))
            if self.fault == "channels swapped":
                batch = replace(batch, images=batch.images.flip(1))
            if self.fault == "nan":
                batch = replace(batch, images=batch.images * float("nan"))
            if self.fault == "labels of another" and at == 0:
                batch = LoadedBatch(batch.images.roll(1, 0), batch.index)
            yield batch

    def close(self):
        self.inner.close()


def faulty(fault) -> LoaderKind:
    return LoaderKind(fault, "", lambda device: None, lambda task: Faulty(task, fault))


def test_a_loader_that_fails_is_a_row_with_its_reason_and_the_others_go_on(task):
    found = compare_loaders(
        ComparisonRun(task, [faulty("raises"), pillow_loaders.PILLOW_V1], QUICK)
    )

    assert found.rows[0].why == "RuntimeError: the third batch is lost"
    assert found.rows[1].measured and len(found.rows[1].parts) == 2


def test_a_label_that_comes_twice_is_found_and_the_loader_not_recommended(task):
    (row,) = (found := compare_loaders(ComparisonRun(task, [faulty("a label twice")], QUICK))).rows

    assert (
        row.epoch.wrong.startswith("1 came more than once (")
        and "1 never came (" in row.epoch.wrong
    )
    assert found.choice == "No loader was measured without a fault, so none is recommended."


@pytest.mark.parametrize("fault", ["mirrored", "channels swapped", "nan", "labels of another"])
def test_images_that_are_not_those_of_the_transform_are_found(task, fault):
    fixed = side_by_side._frozen_task(task)
    reference = side_by_side._gray_images(pillow_loaders.PILLOW_V1, fixed)

    assert side_by_side._compare_images(
        side_by_side._gray_images(faulty(fault), fixed), reference
    ).outside
    assert not side_by_side._compare_images(
        side_by_side._gray_images(faulty("none"), fixed), reference
    ).outside


def test_samples_that_came_twice_or_never_are_named():
    assert side_by_side._arrival_problems({0: 1, 1: 1, 2: 1}, 3) == ""
    assert (
        side_by_side._arrival_problems({0: 2, 5: 1}, 3)
        == "1 came more than once (0); 2 never came (1, 2); 1 do not exist (5)"
    )


def test_a_part_of_an_epoch_counts_the_cpu_time_of_the_workers(task):
    found = loader_timing.run_part(
        pillow_loaders.PILLOW_V1, side_by_side._repeat_photos(task, 20 * COUNT), 0, 0.3
    )

    assert found.samples % task.settings.batch_size == 0
    assert 3 * found.main_s < found.cpu_s < 3 * found.wall_s


def test_an_epoch_too_short_to_measure_is_said(task):
    short = replace(task, photos=replace(task.photos, photos=task.photos.photos[:3]))

    with pytest.raises(ValueError, match="an epoch of 1 batches is too short"):
        loader_timing.run_part(pillow_loaders.PILLOW_V1, short, 0, 0.1)


def test_cpu_time_includes_children_alive_and_ended():
    before = _tree_cpu_s()
    burn = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        child.stdout.readline()
        alive = _tree_cpu_s() - before
        child.communicate(b"\n")
    time.sleep(0.01)

    assert alive > 0.29
    assert _tree_cpu_s() - before > 0.29


class Tires(nn.Module):
    """Trains for one step."""

    def __init__(self):
        super().__init__()
        self.head, self.steps = nn.Linear(3, 2), 0

    def forward(self, images):
        self.steps += 1
        if self.steps > 1:
            raise RuntimeError("the second step fails")
        return self.head(images.mean((2, 3)))


class Huge(nn.Module):
    """Asks for an exbibyte."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 2)

    def forward(self, images):
        return self.head(torch.empty(2**58, 3))


class FindsNoRoom(Tires):
    """Does what a model does that is larger than the GPU's memory."""

    def to(self, *args, **kwargs):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 80.00 GiB.\nmore")


def test_a_model_that_fails_after_the_rounds_costs_only_what_needs_it(task):
    run = ComparisonRun(task, [SYNTHETIC], QUICK)

    found = compare_loaders(run, loader_timing.prepare_training_step(Tires(), task))

    assert found.rows[0].measured and found.compute is None
    assert (
        "the model: not measured: the model's training step fails: RuntimeError: the second step "
        "fails" in text._remarks(found)
    )


@pytest.mark.parametrize("model", [Huge(), FindsNoRoom()], ids=["a batch", "a model"])
def test_too_little_memory_for_a_step_is_said_with_the_way_out(model, task):
    with pytest.raises(UserCodeError) as error:
        loader_timing.prepare_training_step(model, task)

    assert str(error.value) == (
        "a training step on 4 images needs more memory than cpu has left: use a smaller "
        "--batch-size"
    )


def test_whatever_else_a_model_raises_before_its_first_step_is_its_own(task):
    class Refuses(nn.Module):
        def train(self, mode=True):
            raise KeyError("mode")

    with pytest.raises(UserCodeError, match=r"^the model's training step fails: KeyError: 'mode'$"):
        loader_timing.prepare_training_step(Refuses(), task)


def on_a_disk(photos):
    if (kind := read_speed.filesystem(photos.root)) in ("tmpfs", "ramfs", "unknown"):
        pytest.skip(f"nothing can be evicted from a file system of type {kind}")


def test_images_that_do_not_stay_in_the_page_cache_are_not_called_warm(task, photos, monkeypatch):
    on_a_disk(photos)
    few = replace(photos, photos=photos.photos[:10])
    # as it is after reading more files than there is memory
    monkeypatch.setattr(side_by_side, "_fill_page_cache", lambda photos: side_by_side._drop(few))

    found = compare_loaders(ComparisonRun(task, [SYNTHETIC], QUICK))

    assert (found.cache, found.cached) == ("partly cached", pytest.approx(13 / 23))
    assert "Images only partly cached (57 %)." in text._about(found)


def test_images_that_stay_in_the_page_cache_are_not_called_cold(photos):
    on_a_disk(photos)
    assert side_by_side._evict_photos(photos) == 0.0
    with ExitStack() as stack:
        for photo in photos.photos:
            file = stack.enter_context(open(photo.path, "rb"))
            mapped = stack.enter_context(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
            assert len(mapped[:]) == photo.bytes

        with pytest.raises(DataError, match="because 100 % of them stay in the page cache"):
            side_by_side._evict_photos(photos)


def test_repeating_a_large_dataset_takes_the_memory_of_one_list(task):
    photo = Photo("a.jpg", 0, 1000, "JPEG", 64, 48, "RGB")
    many = replace(task, photos=Photos(Path("photos"), ["a"], [photo] * 50_000, []))
    row = LoaderRow("pillow-v1", "", epoch=Epoch(50_000, 50.0))
    tracemalloc.start()
    try:
        repeated = side_by_side._repeated(many, row, 1.5)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert len(repeated.photos) == 50_000 and peak < 2 * 8 * 50_000


def test_sending_counts_the_work_of_the_worker_for_every_batch(task):
    def collate(samples):
        until = time.process_time() + 0.05
        while time.process_time() < until:
            pass
        return torch.utils.data.default_collate(samples)

    def finish(images):
        time.sleep(0.15)  # meanwhile the worker makes the two batches that it is ahead
        return images

    large = replace(task, settings=replace(task.settings, batch_size=128))
    samples, _ = pillow_loaders.reference_samples(large)
    loader = WorkerLoader(large, samples, finish=finish, collate=collate)

    cost_s = loader_timing._transport_s(loader, torch.zeros(3, 8, 8), large)

    assert 0.05 < cost_s * 128 < 0.1

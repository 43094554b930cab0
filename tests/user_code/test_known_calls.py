import os
import re
from dataclasses import replace

import pytest
from user_code.made_stacks import FETCHING, LIBRARIES, LOOP, PYTHON, TORCH, process, stack

from feedline.analysis.explain.run_facts import source_of
from feedline.analysis.ledger.calls_per_sample import PER_SAMPLE
from feedline.analysis.ledger.calls_per_step import (
    PER_EVALUATION,
    PER_STEP,
    PER_UPDATE,
    TOLD_BY_MORE,
)
from feedline.analysis.ledger.known_call import _of_text, known_call
from feedline.analysis.measure.code_tree import CodeNode, SampledCode
from feedline.analysis.measure.source_lines import SourceLines
from feedline.profiler.store.manifest import Manifest
from feedline.profiler.store.run_folder import Rank
from feedline.profiler.store.sampled_stacks import FileState

GETITEM = ("data.py", 20, "__getitem__")


def found(*below, calls=PER_SAMPLE):
    code = SampledCode.of([process("worker", stack([*FETCHING, GETITEM, *below], 50))])
    root = code.places["worker", "dataset"].root
    call = known_call(root, calls, code.source)
    return call.call.name if call else None


@pytest.mark.parametrize(
    ("frame", "name"),
    [
        ((LIBRARIES + "pandas/core/indexing.py", 1, "__getitem__"), "pandas_row"),
        ((LIBRARIES + "pandas/io/parsers/readers.py", 1, "read_csv"), "table_read"),
        ((LIBRARIES + "h5py/_hl/files.py", 1, "__init__"), "hdf5_opened"),
        ((LIBRARIES + "h5py/_hl/dataset.py", 1, "__getitem__"), "chunk_unpacked"),
        ((LIBRARIES + "numpy/lib/_npyio_impl.py", 1, "__getitem__"), "npz_read"),
        ((PYTHON + "zipfile.py", 1, "_RealGetContents"), "zip_opened"),
        ((PYTHON + "copy.py", 1, "deepcopy"), "deepcopy"),
        ((PYTHON + "json/__init__.py", 1, "load"), "json_parsed"),
        ((PYTHON + "xml/etree/ElementTree.py", 1, "parse"), "xml_parsed"),
        ((PYTHON + "subprocess.py", 1, "run"), "process_started"),
        ((TORCH + "serialization.py", 1, "load"), "tensors_loaded"),
        ((LIBRARIES + "torchcodec/decoders/_video_decoder.py", 1, "__init__"), "video_opened"),
        ((LIBRARIES + "decord/video_reader.py", 1, "__init__"), "video_opened"),
        ((LIBRARIES + "decord/video_reader.py", 1, "get_batch"), None),
        ((LIBRARIES + "scipy/signal/_signaltools.py", 1, "resample"), "resampled"),
        ((LIBRARIES + "scipy/ndimage/_interpolation.py", 1, "zoom"), "interpolated"),
        ((LIBRARIES + "scipy/ndimage/_filters.py", 1, "gaussian_filter"), None),
        ((PYTHON + "tarfile.py", 1, "getmember"), "tar_opened"),
        ((PYTHON + "tarfile.py", 1, "next"), None),
        ((LIBRARIES + "scipy/sparse/_index.py", 1, "__getitem__"), "sparse_row"),
        ((LIBRARIES + "skimage/transform/_warps.py", 1, "resize"), "resized_in_double"),
        ((PYTHON + "multiprocessing/managers.py", 1, "_callmethod"), "shared_by_manager"),
        ((PYTHON + "random.py", 1, "shuffle"), "shuffled"),
        ((PYTHON + "random.py", 1, "sample"), "drawn_one_by_one"),
        ((LIBRARIES + "h5py/_hl/dataset.py", 1, "__iter__"), "hdf5_iterated"),
        ((PYTHON + "re/__init__.py", 1, "sub"), "matched"),
        ((LIBRARIES + "PIL/Image.py", 1, "getpixel"), "pixels_one_by_one"),
        ((LIBRARIES + "PIL/Image.py", 1, "resize"), None),
        (
            (LIBRARIES + "numpy/lib/_function_base_impl.py", 1, "_vectorize_call"),
            "called_for_each_value",
        ),
        ((LIBRARIES + "numpy/lib/_function_base_impl.py", 1, "flip"), None),
        ((LIBRARIES + "scipy/spatial/_kdtree.py", 1, "query"), "neighbors_searched"),
        ((LIBRARIES + "networkx/utils/backends.py", 1, "__call__"), "graph_in_python"),
        ((LIBRARIES + "numpy/_core/numeric.py", 1, "ones"), None),
        ((LIBRARIES + "numpy/lib/_npyio_impl.py", 1, "load"), None),
    ],
)
def test_a_frame_of_a_library_shows_a_known_call(frame, name):
    assert found(frame) == name


@pytest.mark.parametrize("calls", [PER_STEP, PER_UPDATE], ids=["step", "update"])
def test_what_becomes_text_is_told_in_the_loop_and_in_updates(calls):
    frames = [(TORCH + "_tensor.py", 1, "__format__"), (TORCH + "_tensor_str.py", 1, "_str")]

    assert found(*frames, calls=calls) == "formatted"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("x = torch.tensor(rows[i], dtype=torch.uint8)", "list_to_tensor"),
        ("ids = tok.encode(text).ids", "tokenized"),
        ("value = txn.get(str(i).encode())", None),
        ("value = txn.get(key.encode('utf-8'))", None),
        ("line = open(path).readlines()[index]", "lines_read"),
        ("words = path.read_text().splitlines()[self.rows[i]].split()", "lines_read"),
        ("for line in file.readlines()[first:last]:", "lines_read"),
        ("lines = open(path).readlines()", None),
        ("label = float(path.read_text())", None),
        ("rows = open(self.paths[i]).readlines()[1:]", None),
        ("row = db.execute(QUERY, (i,)).fetchone()", "database_scan"),
        ("for frame in container.decode(video=0):", "video_decoded"),
        ("frames = list(box.decode(self.stream))", "video_decoded"),
        ("text = data.decode('utf-8')", None),
        ("text = video.decode()", None),
        ("env = lmdb.open(path, readonly=True)", "lmdb_opened"),
        ("return self.images[i], self.labels[i]", None),
        ("n = np.random.choice(ITEMS, size=4, replace=False)", "drawn_by_shuffling"),
        ("n = rng.choice(ITEMS, size=4, replace=False)", None),
        ("i = torch.randperm(len(points))[:64]", "drawn_by_shuffling"),
        ("kept = torch.randperm(count)[: int(0.25 * count)]", None),
        ("i = np.random.choice(len(w), 1024, replace=False, p=w)", None),
        ("i = np.random.choice(len(w), p=w / w.sum())", None),
        ("i = torch.multinomial(self.weights, 64)", None),
        ("i = torch.multinomial(self.weights, 64, replacement=True)", "chances_summed"),
        ("x = np.array(self.data.variables['t2m'][i])", None),
        ("x = torch.tensor(source.read())", None),
        ("points = points[torch.randperm(len(points))]", None),
        ("atoms = torch.cat([atoms, atom[None]])", "grown_by_copying"),
        ("self.all = np.append(self.all, row)", "grown_by_copying"),
        ("batch = torch.cat([images, masks])", None),
        ("return sum([pieces(word) for word in text.split()], [])", "lists_summed"),
        ("tokens = sum(words, start=[])", "lists_summed"),
        ("total = sum(lengths)", None),
        ("total = sum(lengths, 0)", None),
        ("if pair not in self.links:", "list_searched"),
        ("return self.words.index(word)", "list_searched"),
        ("return [self.words.index(t) if t in self.words else 1 for t in tokens]", "list_searched"),
        ("for pair in self.links:", None),
        ("gc.collect()", "garbage_collected"),
        ("i = np.random.choice(COUNT, p=self.chances)", "chances_summed"),
        ("i = random.choices(rows, weights=self.chances)[0]", "chances_summed"),
        ("i = random.choices(rows, k=4)", None),
        ("return self.rows.pop(0)", "taken_from_the_front"),
        ("rows.insert(0, row)", "taken_from_the_front"),
        ("return self.rows.pop()", None),
        ("index[0, i * count + j] = i", "filled_one_by_one"),
        ("table[row, column] += value", "filled_one_by_one"),
        ("table[row, :] = values", None),
        ("table[row, column] = score(row)", None),
        ("counts[word] += 1", None),
        ("names = os.listdir(self.folder)", "folder_listed"),
        ("return [word for word in words if word in known]", None),
    ],
)
def test_the_text_of_a_line_shows_a_call_without_a_frame(text, name):
    call = _of_text(PER_SAMPLE, text)

    assert (call.name if call else None) == name


def test_a_line_is_read_only_from_a_file_that_has_not_changed(tmp_path):
    file = tmp_path / "data.py"
    file.write_text("one\n  two\n")
    changed = file.stat().st_mtime

    assert SourceLines(changed + 1)(str(file), 2) == "two"
    assert SourceLines(changed - 1)(str(file), 2) == ""
    assert SourceLines(changed + 1)(str(file), 3) == ""
    assert SourceLines(changed + 1)("***/data.py", 1) == ""
    assert SourceLines()(str(file), 1) == ""


def test_a_file_whose_state_was_recorded_must_have_it_still(tmp_path):
    file = tmp_path / "data.py"
    file.write_text("one\n")
    about = file.stat()
    state = FileState(about.st_mtime_ns, about.st_size)

    def line(seen: FileState) -> str:
        return SourceLines(about.st_mtime + 1, (), {str(file): seen})(str(file), 1)

    assert line(state) == "one"
    assert line(state._replace(size=5)) == line(state._replace(changed_ns=5)) == ""


def test_a_file_whose_folder_is_masked_is_found_by_its_name_and_its_recorded_state(
    tmp_path, monkeypatch
):
    """The program is elsewhere: its folder is known from the command line alone."""
    file = tmp_path / "train.py"
    file.write_text("one\n")
    about = file.stat()
    monkeypatch.setattr("sys.argv", ["feedline", "run", str(file), "--epochs", "3"])
    rank = tmp_path / "elsewhere" / "runs" / "a" / "b" / "rank0"
    manifest = Manifest(anchors=[{"time_ns": about.st_mtime_ns + 1_000_000_000}])
    lines = source_of(Rank(rank, 0, 0, manifest, []))
    state = FileState(about.st_mtime_ns, about.st_size)

    assert lines("***/train.py", 1) == ""
    for seen, line in ((state, "one"), (state._replace(size=5), "")):
        known = replace(lines, states={"***/train.py": seen}, _files={})
        assert known("***/train.py", 1) == line


def test_a_file_of_the_same_name_without_the_function_is_another_one(tmp_path):
    (tmp_path / "runs" / "a" / "rank0").mkdir(parents=True)
    (tmp_path / "data.py").write_text("def load():\n    read()\n")
    later_ns = (tmp_path / "data.py").stat().st_mtime_ns + 1_000_000_000
    manifest = Manifest(anchors=[{"time_ns": later_ns}])
    lines = source_of(Rank(tmp_path / "runs" / "a" / "rank0", 0, 0, manifest, []))

    assert lines("data.py", 2, "load") == "read()"
    assert lines("data.py", 2, "save") == ""


@pytest.mark.parametrize(
    "call",
    [*PER_SAMPLE, *PER_STEP, *TOLD_BY_MORE, *PER_UPDATE, *PER_EVALUATION],
    ids=lambda call: call.name,
)
def test_each_call_says_little_and_names_a_public_report(call):
    assert len(call.says.split()) <= 22 and call.says.endswith(".")
    assert len(call.fix.split()) <= 15 and not call.fix.endswith(".")
    assert re.fullmatch(r"https://github\.com/[^/]+/[^/]+/(issues|pull)/\d+", call.report)
    assert call.signs or call.text
    assert not re.match(r"\w+ (it|them|this)\b", call.fix)  # of which nothing was said yet


def test_names_are_unique_and_there_are_thirty_or_more():
    names = [call.name for call in (*PER_SAMPLE, *PER_STEP, *TOLD_BY_MORE)]

    assert len(names) == len(set(names)) >= 30


@pytest.mark.parametrize(
    ("line", "name"), [(3, "objects_counted"), (4, "objects_counted"), (6, None)]
)
def test_what_a_loop_over_a_call_does_is_its_time(line, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "watch.py").write_text(
        "def track():\n"
        "    total = 0\n"
        "    for thing in gc.get_objects():\n"
        "        total += size(thing)\n"
        "    for one in rows:\n"
        "        total += one\n"
    )
    os.utime(tmp_path / "watch.py", (1e9, 1e9))
    code = SampledCode.of(
        [process("main", stack([*LOOP, ("watch.py", line, "track")], 50))], SourceLines(2e9)
    )

    found = known_call(code.places["main", "other"].root, PER_STEP, code.source)

    assert (found.call.name if found else None) == name
    assert found is None or found.line in (3, 4)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("x = self.table(nn.functional.one_hot(items, ITEMS).float())", "one_hot"),
        ("x = torch.eye(ITEMS)[items]", "one_hot"),
        ("mask = torch.eye(len(x)).bool()", None),
        ("outputs = torch.cat((outputs, output))", "grown_by_copying_in_step"),
    ],
)
def test_the_same_of_calls_in_each_step(text, name):
    call = _of_text(PER_STEP, text)

    assert (call.name if call else None) == name


@pytest.mark.parametrize(("line", "name"), [(4, "filled_one_by_one"), (5, None)])
def test_a_tensor_is_filled_only_in_a_loop(tmp_path, line, name):
    file = tmp_path / "pairs.py"
    file.write_text(
        "def pairs(count):\n    index = torch.empty(2, count)\n    for i in range(count):\n"
        "        index[0, i] = i\n    index[1, 0] = 0\n"
    )
    node = CodeNode((str(file), "pairs"), 1.0, lines={line: 1.0}, in_c={line: 1.0})

    call = known_call(node, PER_SAMPLE, SourceLines(file.stat().st_mtime + 1))

    assert (call.call.name if call else None) == name


GUNZIP = (PYTHON + "gzip.py", 1, "read")
VOLUME = [(LIBRARIES + "nibabel/dataobj_images.py", 1, "get_fdata"), GUNZIP]
JOBLIB = [(LIBRARIES + "joblib/numpy_pickle.py", 1, "load")]
DEEPCOPY = [(PYTHON + "copy.py", 1, "deepcopy")]
SLICED = """data = image.get_fdata()
    return data[:, :, self.slices[i]]"""
WHOLE = """data = image.get_fdata()
    data[data < 0] = 0
    return torch.from_numpy(data)[None], self.labels[i]"""
FROM_BYTES = """data = file.read()
    return np.frombuffer(data, np.float32).reshape(9, 9)[i].copy(), i % 10"""


def called(body: str, frames, folder, calls=PER_SAMPLE) -> str | None:
    """Return the known call of a function whose first line is sampled; frames: below that line."""
    file = folder / "rows.py"
    file.write_text(f"def get(self, i):\n    {body}\n")
    os.utime(file, (1e9, 1e9))
    code = SampledCode.of(
        [process("worker", stack([*FETCHING, (str(file), 2, "get"), *frames], 50))],
        SourceLines(2e9),
    )
    call = known_call(code.places["worker", "dataset"].root, calls, code.source)
    return call.call.name if call else None


@pytest.mark.parametrize(
    ("body", "frames", "name"),
    [
        (SLICED, VOLUME, "volume_unpacked"),
        (FROM_BYTES, [GUNZIP], "volume_unpacked"),
        ("return np.asarray(image.dataobj[..., i])", VOLUME, "volume_unpacked"),
        (WHOLE, VOLUME, None),
        (SLICED, VOLUME[:1], None),  # .nii: nothing is unpacked
    ],
)
def test_a_file_is_unpacked_for_a_part_only_where_it_is_compressed_and_sliced(
    body, frames, name, tmp_path
):
    assert called(body, frames, tmp_path) == name


@pytest.mark.parametrize(
    ("body", "frames", "name"),
    [
        ("return pickle.load(open(FILE, 'rb'))[i]", [], "file_unpickled"),
        ("return pickle.load(open(self.path, 'rb'))[i]", [], "file_unpickled"),
        ("return joblib.load(self.folder / 'rows.pkl')[i]", JOBLIB, "file_unpickled"),
        ("return pickle.loads(self.txn.get(key))", [], None),
        ("return pickle.load(open(self.paths[i], 'rb'))", [], None),
        ("return pickle.load(open(f'{i}.pkl', 'rb'))", [], None),
        ("return pickle.load(open(path, 'rb'))", [], None),
        ("return joblib.load(self.folder / f'{i}.pkl')", JOBLIB, None),
        ("return dill.loads(self.rows[i])", [(LIBRARIES + "dill/_dill.py", 1, "loads")], None),
    ],
)
def test_a_file_is_unpickled_whole_only_where_it_is_the_same_for_all_samples(
    body, frames, name, tmp_path
):
    assert called(body, frames, tmp_path) == name


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ("kept[:] = [copy.deepcopy(model) for _ in range(4)]", "state_copied"),
        ("best = copy.deepcopy(self.policy_net.state_dict())", "state_copied"),
        ("self.ema = deepcopy(self.ema)", "state_copied"),
        ("saved = copy.deepcopy(env)", None),
        ("tree = copy.deepcopy(remaining)", None),
    ],
)
def test_the_state_of_a_model_is_copied_only_where_the_statement_names_one(body, name, tmp_path):
    assert called(body, DEEPCOPY, tmp_path, PER_STEP) == name

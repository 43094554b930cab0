"""The diff of the user's file: what it changes, that ``patch`` and ``git apply`` take it, and what
is refused.
"""

import subprocess

import pytest

from feedline.cli.verify.tried_change import NoDiff, loader_diff

SETTINGS = {"num_workers": 4, "persistent_workers": True}
CALLS = {
    "one line": (
        "loader = DataLoader(data, batch_size=8)",
        "loader = DataLoader(data, batch_size=8, num_workers=4, persistent_workers=True)",
    ),
    "a keyword that is there": (
        "loader = DataLoader(data, num_workers = 2, shuffle=True)  # slow",
        "loader = DataLoader(data, num_workers = 4, shuffle=True, persistent_workers=True)  # slow",
    ),
    "by position": (
        "loader = torch.utils.data.DataLoader(data, 8, True, None, None, 2)",
        "loader = torch.utils.data.DataLoader(data, 8, True, None, None, 4, "
        "persistent_workers=True)",
    ),
    "lines of their own": (
        "loader = DataLoader(\n    data,\n    batch_size=8,\n)",
        "loader = DataLoader(\n    data,\n    batch_size=8,\n    num_workers=4,\n    "
        "persistent_workers=True,\n)",
    ),
    "a class of the program's own": (
        "class Own(DataLoader):\n def __init__(self):\n  super().__init__(data, shuffle=True)",
        "class Own(DataLoader):\n def __init__(self):\n  super().__init__(data, shuffle=True, "
        "num_workers=4, persistent_workers=True)",
    ),
    "in another call": (
        "train(model, DataLoader(data, 8), DataLoaderOfOthers)",
        "train(model, DataLoader(data, 8, num_workers=4, persistent_workers=True), "
        "DataLoaderOfOthers)",
    ),
    "bytes before it": (
        "loader = {'é': DataLoader(data, collate_fn=lambda b: 'ü')}",
        "loader = {'é': DataLoader(data, collate_fn=lambda b: 'ü', num_workers=4, "
        "persistent_workers=True)}",
    ),
}


@pytest.fixture
def project(tmp_path):
    """A folder with ``src/train.py``; returns a function that writes it, and gives the line of the
    call.
    """
    (tmp_path / "src").mkdir()

    def write(code, ending="\n", before="import torch\n\n"):
        text = f"{before}{code}{ending}"
        (tmp_path / "src" / "train.py").write_bytes(text.encode())
        line = next(
            number
            for number, part in enumerate(text.splitlines(), 1)
            if "DataLoader(" in part and "class " not in part or "super()" in part
        )
        return f"src/train.py:{line}"

    write.folder = tmp_path
    return write


@pytest.mark.parametrize(
    "tool",
    [["patch", "-p0", "-s", "-i", "fix.patch"], ["git", "apply", "-p0", "fix.patch"]],
    ids=["patch", "git"],
)
@pytest.mark.parametrize(
    "ending", ["\n", "", "\n\nprint(loader)\n"], ids=["newline", "no newline", "more"]
)
@pytest.mark.parametrize("case", CALLS)
def test_the_diff_applies_and_changes_nothing_else(project, case, ending, tool):
    old, new = CALLS[case]
    at = project(old, ending)
    folder = project.folder
    before = (folder / "src" / "train.py").read_text()

    (folder / "fix.patch").write_text(loader_diff(at, "", "DataLoader", SETTINGS, folder))
    assert (folder / "src" / "train.py").read_text() == before
    subprocess.run(tool, cwd=folder, check=True, capture_output=True)

    assert (folder / "src" / "train.py").read_text() == before.replace(old, new)


@pytest.mark.parametrize(
    ("code", "settings", "changed"),
    [
        (
            "DataLoader(data, num_workers=2, prefetch_factor=4, persistent_workers=True)",
            {"num_workers": 0},
            "None, persistent_workers=False)",
        ),
        ("DataLoader(data, 8)", {"num_workers": 0}, "DataLoader(data, 8, num_workers=0)"),
        (
            "DataLoader(data, multiprocessing_context='fork')",
            {"multiprocessing_context": "spawn"},
            "multiprocessing_context='spawn')",
        ),
    ],
)
def test_without_workers_what_needs_them_is_neutral(project, code, settings, changed):
    assert changed in loader_diff(project(code), "", "DataLoader", settings, project.folder)


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("loader = DataLoader(data, **options)", r"passes arguments by \* or \*\*"),
        ("loader = DataLoader(*given)", r"passes arguments by \* or \*\*"),
        ("a, b = DataLoader(one), DataLoader(two)", "makes several loaders"),
        ("loader = DataLoader(data, collate_fn=(f))", "cannot be changed"),
        ("loader = DataLoader(data", "cannot be changed .SyntaxError."),
    ],
)
def test_a_call_that_cannot_be_changed_for_sure_is_refused(project, code, why):
    with pytest.raises(
        NoDiff, match=f"{why}.*: write DataLoader\\(..., num_workers=4, persistent_workers=True\\)"
    ):
        loader_diff(project(code), "", "DataLoader", SETTINGS, project.folder)


@pytest.mark.parametrize("at", ["", "***.py:3", "src/gone.py:3"])
def test_a_file_that_is_not_known_is_refused(project, at):
    with pytest.raises(NoDiff, match="write DataLoader"):
        loader_diff(at, "", "DataLoader", SETTINGS, project.folder)


def test_a_function_of_a_library_that_takes_the_arguments_gets_them(project):
    project("loader = timm.data.create_loader(data,\n    num_workers=2)  # a DataLoader()")

    assert "+    num_workers=4)" in loader_diff(
        "src/train.py:3", "timm", "MultiEpochsDataLoader", {"num_workers": 4}, project.folder
    )
    with pytest.raises(NoDiff, match="nothing that takes num_workers, persistent_workers"):
        loader_diff("src/train.py:3", "timm", "MultiEpochsDataLoader", SETTINGS, project.folder)


def test_transformers_is_given_them_in_its_arguments(project):
    code = (
        "arguments = TrainingArguments(output_dir='out', dataloader_num_workers=2)\nloader = "
        "DataLoader(Trainer(arguments))"
    )
    at = project(code)

    found = loader_diff(at, "transformers", "DataLoader", SETTINGS, project.folder)

    assert (
        "+arguments = TrainingArguments(output_dir='out', dataloader_num_workers=4, "
        "dataloader_persistent_workers=True)" in found
    )
    found = loader_diff(at, "transformers", "DataLoader", {"batch_size": 64}, project.folder)
    assert "dataloader_num_workers=2, per_device_train_batch_size=64)" in found


def test_without_workers_what_transformers_refuses_is_neutral(project):
    pytest.importorskip("transformers", reason="transformers is not installed")
    code = (
        "arguments = TrainingArguments('out', dataloader_num_workers=4, "
        "dataloader_prefetch_factor=4, dataloader_persistent_workers=True)\nloader = DataLoader()"
    )
    diff = loader_diff(
        project(code), "transformers", "DataLoader", {"num_workers": 0}, project.folder
    )
    (project.folder / "fix.patch").write_text(diff)
    subprocess.run(
        ["patch", "-p0", "-s", "-i", "fix.patch"],
        cwd=project.folder,
        check=True,
        capture_output=True,
    )

    assert (project.folder / "src" / "train.py").read_text().splitlines()[2] == (
        "arguments = TrainingArguments('out', dataloader_num_workers=0, "
        "dataloader_prefetch_factor=None, dataloader_persistent_workers=False)"
    )


@pytest.mark.parametrize(("version", "knows"), [("4.57.1", False), ("5.15.0", True)])
def test_an_argument_that_the_installed_transformers_lacks_is_set_where_its_loader_is_made(
    project, tmp_path, monkeypatch, version, knows
):
    about = tmp_path / "installed" / f"transformers-{version}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Name: transformers\nVersion: {version}\n")
    monkeypatch.syspath_prepend(about.parent)
    at = project("arguments = TrainingArguments()\nloader = DataLoader(arguments)")
    given = (at, "transformers", "DataLoader", {"in_order": False}, project.folder)

    if knows:
        assert "+arguments = TrainingArguments(dataloader_in_order=False)" in loader_diff(*given)
        return
    with pytest.raises(
        NoDiff, match=r"have no in_order in .*: override Trainer\.get_train_dataloader, and set in_"
    ):
        loader_diff(*given)


@pytest.mark.parametrize(
    "tool",
    [["patch", "-p0", "-s", "-i", "fix.patch"], ["git", "apply", "-p0", "fix.patch"]],
    ids=["patch", "git"],
)
@pytest.mark.parametrize("ending", ["\r\n", ""], ids=["newline", "no newline"])
def test_dos_line_ends_tabs_and_blanks_in_the_name_stay(tmp_path, ending, tool):
    (tmp_path / "my src").mkdir()
    file = tmp_path / "my src" / "train it.py"
    old = (
        f"import torch\n\r\nif True:\r\n\tloader = "
        f"DataLoader(\r\n\t\tdata,\r\n\t\tbatch_size=8,\r\n\t){ending}"
    )
    file.write_bytes(old.encode())

    (tmp_path / "fix.patch").write_bytes(
        loader_diff("my src/train it.py:4", "", "DataLoader", {"num_workers": 4}, tmp_path).encode()
    )
    subprocess.run(tool, cwd=tmp_path, check=True, capture_output=True)

    assert (
        file.read_bytes()
        == old.replace("batch_size=8,", "batch_size=8,\r\n\t\tnum_workers=4,").encode()
    )


def test_a_symbolic_link_is_refused(project):
    at = project("loader = DataLoader(data)")
    (project.folder / "src" / "link.py").symlink_to("train.py")

    with pytest.raises(NoDiff, match=r"src/link.py is a symbolic link.*: write DataLoader"):
        loader_diff(at.replace("train.py", "link.py"), "", "DataLoader", SETTINGS, project.folder)

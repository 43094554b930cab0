"""However a program ends, it says and returns what it does without feedline."""

import os
import pty
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest
from faults.conftest import FEEDLINE
from torture.both import FORK_WARNING

ENDS = {
    "returns": "print('out'); import sys; print('err', file=sys.stderr)",
    "raises": """
        def inner():
            raise ValueError("what went wrong")

        try:
            inner()
        except ValueError as error:
            raise RuntimeError("and what came of it") from error
        """,
    "calls_sys_exit": "print('out'); import sys; sys.exit(7)",
    "exits_with_a_negative_code": "import sys; sys.exit(-1)",
    "exits_with_a_text": "print('out'); import sys; sys.exit('a text')",
    "exits_with_nothing": "import sys; sys.exit()",
    "exits_at_once": "import os; print('out', flush=True); os._exit(3)",
    "has_a_syntax_error": "print('never'\ndef f(:\n",
    "kills_itself": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "is_interrupted": """
        import atexit, os, signal
        atexit.register(print, "goodbye")
        os.kill(os.getpid(), signal.SIGINT)
        """,
    "has_its_own_excepthook": """
        import sys
        sys.excepthook = lambda kind, error, trace: print("hooked", kind.__name__, error, trace.tb_next)
        raise KeyError("lost")
        """,
    "has_an_excepthook_that_raises": """
        import sys
        def hook(*_):
            raise TypeError
        sys.excepthook = hook
        sys.exit("a text")
        """,
    "runs_something_at_exit": "import atexit; atexit.register(print, 'goodbye'); raise "
    "SystemExit(4)",
    "replaces_stdout": "import io, sys; sys.stdout = io.StringIO(); print('nobody reads this')",
    "loses_stdout": "import sys; print('out'); sys.stdout = None",
    "closes_stderr": "import sys; print('out'); sys.stderr.close(); sys.exit(3)",
    "changes_its_folder": """
        import os
        os.makedirs("elsewhere", exist_ok=True)
        os.chdir("elsewhere")
        print(os.getcwd(), __file__)
        """,
    "removes_its_folder": """
        import os
        os.makedirs("gone", exist_ok=True)
        os.chdir("gone")
        os.rmdir(os.getcwd())
        """,
    "forks_a_child_that_exits": """
        import os, sys
        pid = os.fork()
        if pid == 0:
            print("child", flush=True)
            sys.exit(5)
        print("child ended with", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        """,
    "forks_a_child_that_raises": """
        import os
        pid = os.fork()
        if pid == 0:
            raise LookupError("in the child")
        print("child ended with", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        """,
    "has_a_pool": """
        import multiprocessing

        def square(x):
            return x * x

        if __name__ == "__main__":
            with multiprocessing.get_context("fork").Pool(2) as pool:
                print(pool.map(square, range(5)))
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(square, range(5)))
        """,
    "asks_who_it_is": """
        import inspect, pickle, sys

        class Thing: ...

        assert pickle.loads(pickle.dumps(Thing)) is Thing
        print(__name__, __file__, __spec__, __package__, __builtins__, sys.argv, sys.path, sys.modules["__main__"].Thing is Thing)
        print(inspect.getsource(Thing))
        """,
}


#: Of these, another one with the same way out is in scripts/test.
RARE = {
    *(
        "exits_with_nothing",
        "exits_with_a_negative_code",
        "has_an_excepthook_that_raises",
        "forks_a_child_that_raises",
    ),
    *("replaces_stdout", "loses_stdout", "changes_its_folder", "removes_its_folder"),
}


@pytest.mark.parametrize(
    "program", [pytest.param(name, marks=[pytest.mark.long] * (name in RARE)) for name in ENDS]
)
def test_a_program_that(workshop, program):
    script = workshop.write("train.py", ENDS[program])

    plain, recorded = (
        workshop.plain(script, "--epochs", "3"),
        workshop.recorded(script, "--epochs", "3"),
    )

    errors = FORK_WARNING.sub("", recorded.stderr), FORK_WARNING.sub("", plain.stderr)
    assert (recorded.returncode, recorded.stdout) == (plain.returncode, plain.stdout)
    assert errors[0] == errors[1]


def test_a_module_is_run_as_python_does(workshop):
    workshop.write("package/__init__.py", "print('package')")
    workshop.write(
        "package/train.py",
        "from . import part; import sys; print(__name__, __file__, __package__, __spec__.name, "
        "sys.argv)",
    )
    workshop.write("package/part.py", "print('part')")

    plain, recorded = (
        workshop.plain("-m", "package.train", "-x"),
        workshop.recorded("-m", "package.train", "-x"),
    )

    assert (recorded.returncode, recorded.stdout, recorded.stderr) == (
        0,
        plain.stdout,
        plain.stderr,
    )


@pytest.mark.parametrize(
    "fails", ["1 / 0", "import none_such", "raise SystemExit('a text')", "def f(:"]
)
def test_a_module_whose_package_fails_ends_as_in_python(workshop, fails):
    workshop.write("package/__init__.py", fails)
    workshop.write("package/train.py", "print('never')")

    plain, recorded = (
        workshop.plain("-m", "package.train"),
        workshop.recorded("-m", "package.train"),
    )

    def own(text):
        """Its lines without the frames of what runs modules, which is another one here."""
        others = ("runpy", "Traceback (most recent call last)")
        return [line for line in text.splitlines() if not any(map(line.__contains__, others))]

    assert (recorded.returncode, recorded.stdout) == (plain.returncode, plain.stdout) == (1, "")
    assert own(recorded.stderr) == own(plain.stderr)


GO_ON = {
    "thread": """
        threading.Thread(target=goes_on).start()
        """,
    "pool": """
        pool = concurrent.futures.ThreadPoolExecutor(2)
        uploads = [pool.submit(goes_on) for _ in range(2)]
        """,
}


@pytest.mark.parametrize("how", GO_ON)
def test_ctrl_c_ends_the_waiting_for_threads(how, workshop):
    """Once: Python would wait again for a pool, whose threads it joins before its own."""
    script = workshop.write(
        "train.py",
        """
        import concurrent.futures, os, signal, threading, time
        began = threading.Event()

        def goes_on():
            if not began.is_set():
                began.set()
                time.sleep(1)
                os.kill(os.getpid(), signal.SIGINT)
            time.sleep(100)
        """
        + GO_ON[how],
    )
    began = time.monotonic()

    plain, recorded = workshop.plain(script), workshop.recorded(script)

    assert time.monotonic() - began < 60
    assert (recorded.returncode, recorded.stdout) == (plain.returncode, plain.stdout)
    assert recorded.stderr.splitlines() == [
        line.removesuffix(": ") for line in plain.stderr.splitlines()
    ]


@pytest.mark.long
def test_a_traceback_from_within_a_model_has_no_frame_of_feedline(workshop):
    script = workshop.write(
        "train.py",
        """
        import torch

        class Model(torch.nn.Module):
            def forward(self, x):
                return x @ torch.zeros(3, 3)

        Model()(torch.zeros(2, 2))
        """,
    )

    plain, recorded = workshop.plain(script), workshop.recorded(script)

    assert (recorded.returncode, recorded.stderr) == (1, plain.stderr)
    assert "RuntimeError" in plain.stderr


def test_the_report_goes_where_errors_go_unless_standard_output_is_a_terminal(workshop):
    script = workshop.write("train.py", "print('all that the program says')")

    done = workshop.recorded(script, options=())

    assert done.stdout == "all that the program says\n"
    assert "recording into run" in done.stderr
    assert "o training step was recorded" in done.stderr

    terminal, end = pty.openpty()
    code = subprocess.run(
        [*FEEDLINE, "run", "-f", script],
        cwd=workshop.folder,
        stdout=end,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(end)
    said = printed(terminal)

    assert code.stderr.splitlines() == [
        line for line in code.stderr.splitlines() if line.startswith("feedline: ")
    ]
    assert (
        said.index("all that the program says")
        < said.index("o training step was recorded")
        < said.index("report.html")
    )


def printed(terminal: int) -> str:
    """What a terminal was sent, whose other end is closed.

    A terminal holds 4 KB, which is more than what is printed here.
    """
    parts = []
    with suppress(OSError), open(terminal, "rb", buffering=0) as file:
        while part := file.read(4096):
            parts.append(part)
    return b"".join(parts).decode()


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_from_outside_ends_it_as_it_would_without_us(workshop, ending):
    script = workshop.write("train.py", "import time; print('ready', flush=True); time.sleep(60)")

    codes = []
    for command in (
        [sys.executable],
        [sys.executable, "-m", "feedline", "run", "-q", "-o", workshop.run],
    ):
        process = workshop.start(*command, script)
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.5)  # it has to be asleep, for the traceback of an interrupt tells where it was
        process.send_signal(ending)
        codes.append((process.wait(30), process.stdout.read(), process.stderr.read()))

    assert codes[0] == codes[1]
    assert codes[0][0] == -ending

"""Odd ways to start a training, and machines that lack something."""

from torture.case import Case

PLAIN, SPAWNING, STRINGS = "startup/plain.py", "startup/spawning.py", "startup/strings.py"
BOM = r"""{ printf '\xef\xbb\xbf'; cat plain.py; } > bom.py"""
LATIN = r"""{ printf '# -*- coding: latin-1 -*-\nname = "\xfc"\n'; cat plain.py; echo 'print(len(name), ord(name))'; } > latin.py"""
WINDOWS = r"""sed 's/$/\r/' plain.py > windows.py"""
ODD_NAME = "./-ünï 漢字 'q\" $x.py"
ZIP = """cp strings.py __main__.py && "$1" -m zipfile -c app.pyz __main__.py && rm __main__.py"""
FOLDER = "mkdir app && cp strings.py app/__main__.py"
BYTECODE = """"$1" -c 'from py_compile import *; compile("plain.py", "code.pyc", invalidation_mode=PycInvalidationMode(3))'; rm plain.py"""
LONG_ARGUMENTS = tuple("x" * 1000 for _ in range(100))
ODD_ARGUMENTS = ("--", "-q", "-o", "", "a b", "*", "é\n", "--help", "-m", "\U0001f600")

STARTS = [
    Case(PLAIN, cold=True),
    Case(
        PLAIN,
        "symbolic link",
        named="link.py",
        before="mkdir real && mv plain.py real && ln -s real/plain.py link.py",
        cold=True,
    ),
    Case(PLAIN, "no suffix", named="train", before="mv plain.py train", cold=True),
    Case(PLAIN, "byte order mark", named="bom.py", before=BOM, cold=True),
    Case(PLAIN, "Latin-1", named="latin.py", before=LATIN, cold=True, quick=True),
    Case(PLAIN, "Windows line ends", named="windows.py", before=WINDOWS, cold=True),
    Case(
        PLAIN,
        "odd name",
        named=ODD_NAME,
        before="""mv plain.py "./-ünï 漢字 'q\\" \\$x.py\"""",
        cold=True,
    ),
    Case(PLAIN, "path through ..", named="inner/.././plain.py", before="mkdir inner", cold=True),
    Case(PLAIN, "100 KB of arguments", args=LONG_ARGUMENTS, cold=True),
    Case(
        PLAIN,
        "odd arguments",
        args=ODD_ARGUMENTS,
        cold=True,
    ),
    Case(PLAIN, "as a module", named="plain", module=True, cold=True),
    Case(STRINGS, "folder", named="app", before=FOLDER, cold=True),
    Case(PLAIN, "bytecode", named="code.pyc", before=BYTECODE, cold=True),
    Case(
        PLAIN, "no such file", named="nothing.py", exit=2, cold=True, recorded=False, stderr=False
    ),
    *(
        Case(PLAIN, " ".join(flags), flags=flags)
        for flags in (("-OO",), ("-X", "dev"), ("-P",), ("-I",), ("-E",), ("-W", "error"))
    ),
    Case(PLAIN, "-X importtime", flags=("-X", "importtime"), stderr=False),
    Case(SPAWNING, "as a module", named="spawning", module=True),
    Case(STRINGS, "zip file", named="app.pyz", before=ZIP, cold=True),
    Case(SPAWNING, "-I -O", flags=("-I", "-O")),
    Case(SPAWNING, "-X dev", flags=("-X", "dev")),
    Case(SPAWNING, "-W error", flags=("-W", "error")),
    Case("startup/packaged", named="packaged", module=True, args=("-x",), cold=True),
    Case(STRINGS, "-O", flags=("-O",), environment={"ASSERT": "1"}),
    Case(STRINGS, "-u -B", flags=("-u", "-B")),
    Case(STRINGS, "PYTHONHASHSEED=7", environment={"PYTHONHASHSEED": "7"}, cold=True),
    Case(
        STRINGS, "PYTHONOPTIMIZE=2", environment={"PYTHONOPTIMIZE": "2", "ASSERT": "1"}, cold=True
    ),
    Case(
        STRINGS,
        "PYTHONIOENCODING=ascii",
        environment={"PYTHONIOENCODING": "ascii:backslashreplace"},
        cold=True,
    ),
    Case(
        STRINGS,
        "LC_ALL=C",
        environment={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        cold=True,
    ),
    Case(STRINGS, "PYTHONWARNINGS=error", environment={"PYTHONWARNINGS": "error"}, cold=True),
    Case(
        STRINGS,
        "PYTHONFAULTHANDLER",
        environment={"PYTHONFAULTHANDLER": "1", "PYTHONTRACEMALLOC": "3"},
        cold=True,
    ),
    Case(STRINGS, "empty environment", shell='exec env -i PLACE="$PLACE" OMP_NUM_THREADS=1 "$@"'),
]

SMALL = 'mkdir -p "$PLACE"; mount -t tmpfs -o size={} tmpfs "$PLACE"'
BARE_DEV = (
    "mount -t tmpfs tmpfs /dev; mknod -m 666 /dev/null c 1 3; mknod -m 666 /dev/urandom c 1 9"
)
OTHERS = 'mkdir -p "$PLACE/run/rank0"; touch "$PLACE/run/rank0/mine"'
TRAIN, ALONE, LONG, TALKS = (
    "limits/train.py",
    "limits/alone.py",
    "limits/long.py",
    "limits/talks.py",
)

LIMITS = [
    Case(TRAIN, "read-only place", mounts=SMALL.format("1m,ro"), recorded=False, quick=True),
    Case(TRAIN, "full disk", mounts=SMALL.format("64k"), recorded=False),
    Case(LONG, "disk that becomes full", mounts=SMALL.format("512k"), recorded=False),
    Case(TRAIN, "no inodes", mounts=SMALL.format("1m,nr_inodes=4"), recorded=False),
    Case(TRAIN, "place is a file", before='rmdir "$PLACE"; touch "$PLACE"', recorded=False),
    Case(
        TRAIN,
        "place is a link to nowhere",
        before='rmdir "$PLACE"; ln -s nowhere "$PLACE"',
        recorded=False,
    ),
    Case(TRAIN, "folder with other files", before=OTHERS, recorded=False),
    Case(TRAIN, "files of 100 KB", limits={"FSIZE": 100_000}, recorded=False),
    Case(TRAIN, "files of no bytes", limits={"FSIZE": 0}, exit=1, recorded=False),
    Case(LONG, "files of 60 KB", limits={"FSIZE": 60_000}, recorded=False),
    Case("limits/writes_much.py", limits={"FSIZE": 100_000}, recorded=False),
    Case(ALONE, "20 descriptors", limits={"NOFILE": 20}, recorded=False),
    Case(TRAIN, "30 descriptors", limits={"NOFILE": 30}, recorded=False),
    Case("limits/takes_all_descriptors.py", limits={"NOFILE": 100}, recorded=False),
    Case(ALONE, "3 GB of addresses", limits={"AS": 3_000_000_000}, recorded=False),
    Case(ALONE, "no more processes", limits={"NPROC": 0}),
    Case(ALONE, "small stack", shell="ulimit -s 1024"),
    Case(
        ALONE,
        "no locked memory, queues, signals",
        limits={"MEMLOCK": 0, "MSGQUEUE": 0, "SIGPENDING": 0},
    ),
    Case(ALONE, "low priority, one CPU", shell='exec nice -n 19 taskset -c 0 "$@"'),
    Case(ALONE, "umask 777", limits={"UMASK": 0o777}, recorded=False),
    Case(ALONE, "no /dev/shm space", mounts="mount -t tmpfs -o size=4k tmpfs /dev/shm"),
    Case(ALONE, "no /dev/shm", mounts=BARE_DEV),
    Case(ALONE, "no /proc", mounts="mount -t tmpfs tmpfs /proc"),
    Case(ALONE, "no temporary folder", environment={"TMPDIR": "/nowhere"}),
    Case(ALONE, "no home", environment={"HOME": None, "USER": None, "LOGNAME": None}),
    Case(ALONE, "stdin closed", shell='exec "$@" <&-'),
    Case(ALONE, "stdout closed", shell='exec "$@" >&-'),
    Case(ALONE, "stderr closed", shell='exec "$@" 2>&-'),
    Case(ALONE, "all three closed", shell='exec "$@" <&- >&- 2>&-'),
    Case(ALONE, "full stdout", shell='exec "$@" >/dev/full', exit=1),
    Case(ALONE, "full stderr", shell='exec "$@" 2>/dev/full'),
    Case(TALKS, "read for one line", shell='"$@" | head -n 1; exit ${PIPESTATUS[0]}', exit=1),
    Case(TALKS, "on a terminal", shell='script -qec "$(printf "%q " "$@")" /dev/null'),
    Case(TALKS, "ignores hangups", shell='trap "" HUP PIPE INT; exec "$@"'),
    Case(
        TALKS,
        "ended by timeout",
        args=("long",),
        shell='timeout -s TERM 20 "$@"; exit $?',
        exit=124,
    ),
    Case(TRAIN, "two in one folder at once", together=2),
    Case(TRAIN, "two in one second", together=2, output=""),
]

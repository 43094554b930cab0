"""Odd ways to start a training, and machines that lack something."""

from torture.case import Case

PLAIN, SPAWNING, STRINGS = "startup/plain.py", "startup/spawning.py", "startup/strings.py"
BOM = r"""{ printf '\xef\xbb\xbf'; cat plain.py; } > bom.py"""
LATIN = r"""{ printf '# -*- coding: latin-1 -*-\nname = "\xfc"\n'; cat plain.py; echo 'print(len(name), ord(name))'; } > latin.py"""
WINDOWS = r"""sed 's/$/\r/' plain.py > windows.py"""
ZIP = "python3 -m zipfile -c app.pyz spawning.py tiny.py && cp spawning.py __main__.py && python3 -m zipfile -c app.pyz __main__.py tiny.py"
FOLDER = "mkdir app && cp plain.py app/__main__.py && cp tiny.py app"
BYTECODE = """"$1" -c 'import py_compile; py_compile.compile("plain.py", "code.pyc")' && rm plain.py"""
LONG_ARGUMENTS = tuple("x" * 1000 for _ in range(100))
ODD_ARGUMENTS = ("--", "-q", "-o", "", "a b", "*", "é\n", "--help", "-m", "\U0001f600")

STARTS = [
    Case(PLAIN, "symbolic link", named="link.py", shell="mkdir real && mv plain.py tiny.py real && ln -s real/plain.py link.py"),
    Case(PLAIN, "no suffix", named="train", shell="mv plain.py train"),
    Case(PLAIN, "byte order mark", named="bom.py", shell=BOM),
    Case(PLAIN, "Latin-1", named="latin.py", shell=LATIN, quick=True),
    Case(PLAIN, "Windows line ends", named="windows.py", shell=WINDOWS),
    Case(PLAIN, "odd name", named="./-ünï 漢字 'q\" $x.py", shell='mv plain.py "-ünï 漢字 \'q\\" \\$x.py"'),
    Case(PLAIN, "path through ..", named="../work/./plain.py", shell=":"),
    Case(PLAIN, "100 KB of arguments", args=LONG_ARGUMENTS),
    Case(PLAIN, "odd arguments", args=ODD_ARGUMENTS),
    Case(PLAIN, "as a module", named="plain", module=True),
    Case(SPAWNING, "as a module", named="spawning", module=True),
    Case(SPAWNING, "zip file", named="app.pyz", shell=ZIP),
    Case(PLAIN, "folder", named="app", shell=FOLDER),
    Case(PLAIN, "bytecode", named="code.pyc", shell=BYTECODE),
    Case("startup/packaged", named="packaged", module=True, args=("-x",), cold=True),
    Case(PLAIN, "no such file", named="nothing.py", exit=2, cold=True, recorded=False, stderr=False),
    *(Case(PLAIN, " ".join(flags), flags=flags) for flags in (("-OO",), ("-X", "dev"), ("-P",), ("-I",), ("-E",))),
    Case(SPAWNING, "-I -O", flags=("-I", "-O")),
    Case(PLAIN, "-W error", flags=("-W", "error")),
    Case(PLAIN, "-X importtime", flags=("-X", "importtime"), stderr=False),
    Case(STRINGS, "-O", flags=("-O",), environment={"ASSERT": "1"}),
    Case(STRINGS, "-u -B", flags=("-u", "-B")),
    Case(STRINGS, "PYTHONHASHSEED=7", environment={"PYTHONHASHSEED": "7"}, cold=True),
    Case(STRINGS, "PYTHONOPTIMIZE=2", environment={"PYTHONOPTIMIZE": "2", "ASSERT": "1"}, cold=True),
    Case(STRINGS, "PYTHONIOENCODING=ascii", environment={"PYTHONIOENCODING": "ascii:backslashreplace"}, cold=True),
    Case(STRINGS, "LC_ALL=C", environment={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, cold=True),
    Case(STRINGS, "PYTHONWARNINGS=error", environment={"PYTHONWARNINGS": "error"}, cold=True),
    Case(STRINGS, "PYTHONFAULTHANDLER", environment={"PYTHONFAULTHANDLER": "1", "PYTHONTRACEMALLOC": "3"}, cold=True),
    Case(STRINGS, "empty environment", shell='exec env -i PLACE="$PLACE" OMP_NUM_THREADS=1 "$@"'),
]

SMALL = "mkdir -p $PLACE && mount -t tmpfs -o size={} tmpfs $PLACE"
TRAIN, ALONE, LONG = "limits/train.py", "limits/alone.py", "limits/long.py"
OTHERS = "mkdir -p $PLACE/run/rank0 && touch $PLACE/run/rank0/mine"
BARE_DEV = "mount -t tmpfs tmpfs /dev && mknod -m 666 /dev/null c 1 3 && mknod -m 666 /dev/urandom c 1 9"
RECORDER = "session of issue 18, item 4"

LIMITS = [
    Case(TRAIN, "read-only place", shell=SMALL.format("1m,ro"), mounts=True, recorded=False, awaits=RECORDER, quick=True),
    Case(TRAIN, "full disk", shell=SMALL.format("64k"), mounts=True, recorded=False, awaits=RECORDER),
    Case(LONG, "disk that becomes full", shell=SMALL.format("512k"), mounts=True, recorded=False),
    Case(TRAIN, "no inodes", shell=SMALL.format("1m,nr_inodes=4"), mounts=True, recorded=False, awaits=RECORDER),
    Case(TRAIN, "place is a file", shell="rmdir $PLACE && touch $PLACE", recorded=False, awaits=RECORDER),
    Case(TRAIN, "place is a link to nowhere", shell="rmdir $PLACE && ln -s nowhere $PLACE", recorded=False, awaits=RECORDER),
    Case(
        TRAIN,
        "run folder of files of the user's",
        shell="mkdir -p $PLACE/run/rank0 && touch $PLACE/run/rank0/mine",
        recorded=False,
        awaits=RECORDER,
    ),
    Case(TRAIN, "files of 100 KB", shell="ulimit -f 100", recorded=False),
    Case(TRAIN, "files of no bytes", shell="ulimit -f 0", recorded=False, awaits=RECORDER),
    Case(LONG, "long run, files of 60 KB", shell="ulimit -f 60", recorded=False),
    Case("limits/writes_much.py", shell="ulimit -f 100", recorded=False),
    Case(ALONE, "20 descriptors", shell="ulimit -n 20", recorded=False),
    Case(TRAIN, "30 descriptors", shell="ulimit -n 30", recorded=False),
    Case("limits/takes_all_descriptors.py", shell="ulimit -n 100", recorded=False),
    Case(ALONE, "3 GB of addresses", shell="ulimit -v 3000000", recorded=False),
    Case("limits/out_of_memory.py", cold=True),
    Case(ALONE, "no more processes", shell="ulimit -u 1", recorded=False),
    Case(ALONE, "small stack", shell="ulimit -s 1024"),
    Case(ALONE, "no locked memory", shell="ulimit -l 0; ulimit -q 0; ulimit -i 0"),
    Case(ALONE, "no core files, low priority, one CPU", shell='ulimit -c 0; exec nice -n 19 taskset -c 0 "$@"'),
    Case(ALONE, "umask 777", shell="umask 777", recorded=False),
    Case(ALONE, "no /dev/shm space", shell="mount -t tmpfs -o size=4k tmpfs /dev/shm", mounts=True),
    Case(
        ALONE,
        "no /dev/shm",
        shell="mount -t tmpfs tmpfs /dev && mknod -m 666 /dev/null c 1 3 && mknod -m 666 /dev/urandom c 1 9",
        mounts=True,
    ),
    Case(ALONE, "no /proc", shell="mount -t tmpfs tmpfs /proc", mounts=True),
    Case(ALONE, "no temporary folder", environment={"TMPDIR": "/nowhere"}, cold=True),
    Case(ALONE, "no home", shell="unset HOME USER LOGNAME"),
    Case(ALONE, "stdin closed", shell='exec "$@" <&-'),
    Case(ALONE, "stdout closed", shell='exec "$@" >&-'),
    Case(ALONE, "stderr closed", shell='exec "$@" 2>&-'),
    Case(ALONE, "all three closed", shell='exec "$@" <&- >&- 2>&-'),
    Case(ALONE, "full stdout", shell='exec "$@" >/dev/full', exit=120),
    Case(ALONE, "full stderr", shell='exec "$@" 2>/dev/full'),
    Case("limits/talks.py", "read for one line", shell='"$@" | head -n 1; exit ${PIPESTATUS[0]}', exit=1),
    Case("limits/talks.py", "in a session of its own", shell='exec setsid -w "$@"'),
    Case("limits/talks.py", "ignores hangups", shell='trap "" HUP PIPE INT; exec "$@"'),
    Case("limits/talks.py", "on a terminal", shell='script -qec "$(printf "%q " "$@")" /dev/null'),
    Case("limits/talks.py", "ended by timeout", args=("long",), shell='timeout -s TERM 12 "$@"; exit $?', exit=124),
    Case(TRAIN, "another user", shell='chmod -R a+rwX . $PLACE; exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"'),
    Case(TRAIN, "two in one folder at once", together=2),
    Case(TRAIN, "two in one second", together=2, output=""),
]

"""Ways to damage a run folder, drawn by a random generator: the same seed makes the same damage."""

import contextlib
import json
import os
import random
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

NUMBERS = (0, 1, -1, 2, -2, 3, 7, 40, 63, 64, 65, 255, 256, 1000, 65535, 65536, 10**6, 10**9, 2**31 - 1, 2**31, 2**32, 2**53, 10**18,
           2**62, 2**63 - 1, -(2**31), -(2**62), -(2**63))  # fmt: skip
OTHERS: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        "",
        "x",
        "0",
        "1e9",
        "\x1b[31m",
        "\ud800",
        "a" * 100_000,
        0.5,
        -0.0,
        1e308,
        -1e308,
        float("nan"),
        float("inf"),
    ),
    *(
        [],
        {},
        [[]],
        [None],
        [1, 2, 3],
        {"a": 1},
        {"": {}},
        2**64,
        -(2**64),
        10**400,
        [[0] * 50] * 50,
    ),
)
HOW_MANY = (1, 1, 1, 2, 3)
IN_RUN = (".feedline", "ceilings.json")  # what is read of the run folder itself


def damage(draw: random.Random, run: Path, other: Path) -> list[str]:
    """Change a run folder in one to three ways.

    Args:
        run: the copy that is changed.
        other: another run, from which files may come.

    Returns:
        What was done, in words.
    """
    said = []
    ways = draw.choices(list(WAYS), list(WAYS.values()), k=draw.choice(HOW_MANY))
    for way in sorted(ways, key=lambda way: way in LAST):
        with contextlib.suppress(
            OSError,
            ValueError,
            LookupError,
            RecursionError,
            TypeError,
            OverflowError,
            pa.ArrowException,
        ):  # there is nothing left of it to change
            done = way(draw, run, other)
            if done:
                said.append(f"{way.__name__} {done}")
    return said


def files(run: Path) -> list[Path]:
    """What readers read."""
    return sorted(
        path
        for path in run.rglob("*")
        if path.is_file() and (path.parent != run or path.name in IN_RUN)
    )


def pick(draw: random.Random, run: Path, *endings: str) -> Path:
    """One of the files.

    Raises:
        ValueError: there is none.
    """
    found = [path for path in files(run) if path.name.endswith(endings or ("",))]
    if not found:
        raise ValueError
    return draw.choice(found)


def flipped(draw: random.Random, run: Path, _: Path) -> str:
    path = pick(draw, run)
    content = bytearray(path.read_bytes())
    for _ in range(draw.choice((1, 4, 20, 200))):
        content[draw.randrange(len(content))] = draw.choice((0, 255, draw.randrange(256)))
    path.write_bytes(content)
    return str(path.name)


def truncated(draw: random.Random, run: Path, _: Path) -> str:
    path = pick(draw, run)
    size = draw.choice((0, 1, 8, 4096, 12288, draw.randrange(path.stat().st_size + 1)))
    os.truncate(path, size)
    return f"{path.name} to {size}"


def deleted(draw: random.Random, run: Path, _: Path) -> str:
    path = pick(draw, run)
    target = draw.choice((path, path, path.parent))
    shutil.rmtree(target) if target.is_dir() else target.unlink()
    return target.name


def swapped(draw: random.Random, run: Path, other: Path) -> str:
    """A file of another rank, of another process or of another run takes the place of one of the
    same kind.
    """
    path = pick(draw, run)
    alike = [
        one
        for place in (run, other)
        for one in files(place)
        if one.suffix == path.suffix and one != path
    ]
    taken = draw.choice(alike)
    path.write_bytes(taken.read_bytes())
    return f"{taken.name} for {path.name}"


def doubled(draw: random.Random, run: Path, _: Path) -> str:
    """A rank's folder or a segment a second time, under another name."""
    path = pick(draw, run, ".seg", "manifest.json")
    if path.suffix == ".seg":
        name = draw.choice(("loader0-worker7.seg", "loader999-worker0.seg", "a.seg", "main.1.seg"))
        shutil.copy(path, path.with_name(name))
    else:
        name = draw.choice(
            (
                "rank1",
                "rank7",
                "rank0-restart1",
                "rank1-restart2",
                "rank99999999999999999999",
                "rank٣",
            )
        )
        shutil.copytree(path.parent, run / name)
    return name


def special(draw: random.Random, run: Path, other: Path) -> str:
    """A FIFO, a link, a device, a socket or a folder in place of a file; or a link in place of a
    folder.
    """
    path = pick(draw, run)
    kind = draw.choice(
        ("fifo", "link", "link out", "device", "folder", "socket", "linked folder", "loop", "zero")
    )
    if kind == "linked folder":
        path = path.parent
        shutil.rmtree(path)
        path.symlink_to(draw.choice(("/etc", str(other / "rank0"), "..")))
        return f"{path.name} is a link"
    kept = path.with_name(path.name + ".kept")
    path.rename(kept)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "socket":
        here = os.getcwd()
        os.chdir(path.parent)
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
        os.chdir(here)
    elif kind == "device":
        try:
            os.mknod(path, 0o20666, os.makedev(1, 5))
        except PermissionError:
            path.symlink_to("/dev/zero")
    else:
        path.symlink_to(
            {"link": kept.name, "link out": "/etc/passwd", "loop": path.name, "zero": "/dev/zero"}[
                kind
            ]
        )
    return f"{path.name}: {kind}"


def closed(draw: random.Random, run: Path, _: Path) -> str:
    path = pick(draw, run)
    path = draw.choice((path, path.parent))
    path.chmod(draw.choice((0, 0o200, 0o400, 0o100)))
    return path.name


def grown(draw: random.Random, run: Path, _: Path) -> str:
    """A file that says it is long: a hole at its end."""
    path = pick(draw, run)
    size = draw.choice((10**6, 10**8, 10**10, 10**12))
    os.truncate(path, size)
    return f"{path.name} to {size}"


def edited(draw: random.Random, run: Path, _: Path) -> str:
    """Members of the JSON of a manifest, a legend or of ceilings."""
    path = pick(draw, run, ".json")
    data = json.loads(path.read_text())
    said = [f"{path.name}:"]
    for _ in range(draw.choice(HOW_MANY)):
        said.append(change(draw, data))
    path.write_text(json.dumps(data))
    return " ".join(said)


def texted(draw: random.Random, run: Path, _: Path) -> str:
    """JSON that no writer makes."""
    path = pick(draw, run, ".json")
    text = path.read_text()
    strange = (
        "NaN",
        "1e999",
        "-Infinity",
        "9" * 5000,
        "[" * 100_000,
        '{"a":' * 5000,
        '{"a": 1, "a": "b"}',
        "[" + "0," * 100_000 + "0]",
        "\x00",
        "\ufeff",
    )
    made = draw.choice(strange)
    at = draw.choice([place for place, letter in enumerate(text) if letter == ":"] or [0])
    path.write_text(
        draw.choice(
            (
                made,
                text[: at + 1] + made + text[at + 1 :],
                text[: at + 1] + made + ", " + text[text.find('"', at) :],
            )
        )
    )
    return f"{path.name} with {made[:10]}"


def change(draw: random.Random, data: Any) -> str:
    """Change one member at any depth."""
    where = []
    while True:
        keys = list(data) if isinstance(data, dict) else list(range(len(data)))
        if not keys:
            return "nothing"
        key = draw.choice(keys)
        where.append(str(key))
        inner = data[key]
        if isinstance(inner, dict | list) and inner and draw.random() < 0.8:
            data = inner
            continue
        way = draw.randrange(6)
        if way == 0:
            del data[key]
        elif way == 1 and isinstance(data, dict):
            data[draw.choice(("extra", "rank", "kind", ""))] = value(draw)
        elif way == 2 and isinstance(data, list) and len(data) < 1000:
            data.extend(
                [inner] * min(draw.choice((1, 3, 2000)), 1 + 10**7 // (1 + len(str(inner))))
            )
        elif isinstance(inner, bool | int | float) and way < 5:
            data[key] = draw.choice(NUMBERS)
        else:
            data[key] = value(draw)
        return ".".join(where)


def value(draw: random.Random) -> Any:
    return draw.choice(NUMBERS) if draw.random() < 0.3 else draw.choice(OTHERS)


def columns(draw: random.Random, run: Path, _: Path) -> str:
    """Values, types, lengths and names of a Parquet file's columns."""
    path = pick(draw, run, ".parquet")
    table = pq.read_table(path, use_threads=False)
    metadata, said = table.schema.metadata, []
    for _ in range(draw.choice(HOW_MANY)):
        table, done = column(draw, table)
        said.append(done)
    write(draw, table.replace_schema_metadata(metadata), path)
    return f"{path.name}: {', '.join(said)}"


def write(draw: random.Random, table: pa.Table, path: Path) -> None:
    """Mostly as feedline writes them, so that what is read next is the damage."""
    if draw.random() < 0.15:
        pq.write_table(
            table,
            path,
            compression=draw.choice(("none", "snappy", "gzip", "zstd")),
            row_group_size=draw.choice((1, 50, None)),
        )
    else:
        pq.write_table(
            table, path, compression="zstd", use_dictionary=False, write_page_checksum=True
        )


def column(draw: random.Random, table: pa.Table) -> tuple[pa.Table, str]:
    name = draw.choice(table.column_names)
    at, own = table.column_names.index(name), table[name].combine_chunks()
    way = draw.choices(
        ("values", "type", "missing", "extra", "rows", "nulls", "order", "twice"),
        (12, 2, 1, 1, 2, 1, 2, 1),
    )[0]
    if way == "values":
        values = own.to_numpy(zero_copy_only=False).copy()
        rows = draw.choice(
            (
                slice(None),
                slice(draw.randrange(len(values) or 1), None, draw.choice((1, 2, 50))),
                draw.randrange(len(values)),
            )
        )
        number = draw.choice(NUMBERS)
        with np.errstate(all="ignore"):
            values[rows] = np.array(number).astype(values.dtype, casting="unsafe")
        return table.set_column(at, name, pa.array(values)), f"{name} {rows} = {number}"
    if way == "type":
        kind = draw.choice(
            (
                pa.string(),
                pa.float64(),
                pa.int8(),
                pa.uint64(),
                pa.bool_(),
                pa.list_(pa.int64()),
                pa.timestamp("ns"),
                pa.null(),
            )
        )
        made = (
            pa.nulls(len(own), kind)
            if pa.types.is_list(kind) or pa.types.is_null(kind)
            else own.cast(kind, safe=False)
        )
        return table.set_column(at, name, made), f"{name} is {kind}"
    if way == "missing":
        return table.remove_column(at), f"no {name}"
    if way == "extra":
        return table.append_column(draw.choice(("more", name)), own), f"{name} is there twice"
    if way == "nulls":
        return table.set_column(
            at, name, pa.array(own.to_pylist()[:-1] + [None], own.type)
        ), f"{name} has a null"
    if way == "order":
        order = list(range(table.num_rows))
        draw.shuffle(order)
        return table.take(order), "rows in another order"
    if way == "twice":
        return pa.concat_tables([table] * draw.choice((2, 5))), "all rows again"
    return table.slice(0, draw.choice((0, 1, table.num_rows // 2))), "fewer rows"


def described(draw: random.Random, run: Path, _: Path) -> str:
    """The JSON in a Parquet file's metadata."""
    path = pick(draw, run, "events.parquet", "trace.parquet")
    table = pq.read_table(path, use_threads=False)
    metadata = dict(table.schema.metadata)
    key = next(key for key in metadata if key.startswith(b"feedline"))
    data = json.loads(metadata[key])
    done = " ".join(change(draw, data) for _ in range(draw.choice(HOW_MANY)))
    metadata[key] = json.dumps(data).encode("utf-8", "surrogatepass")
    write(draw, table.replace_schema_metadata(metadata), path)
    return f"{path.name}: {done}"


def raw(draw: random.Random, run: Path, _: Path) -> str:
    """Fields of the records in a segment, its sums, or its header."""
    from feedline.profiler.store.record_columns import RECORD_DTYPE

    path = pick(draw, run, ".seg")
    content = bytearray(path.read_bytes())
    if draw.random() < 0.3:
        header = json.loads(content[8:4096].rstrip(b"\0"))
        done = change(draw, header)
        text = json.dumps(header).encode()[: 4096 - 8]
        content[8:4096] = text.ljust(4088, b"\0")
    elif draw.random() < 0.2:
        at = 4096 + 8 * draw.randrange(1024)
        number = draw.choice(NUMBERS)
        content[at : at + 8] = int(number).to_bytes(8, "little", signed=True)
        done = f"sum {at} = {number}"
    else:
        records = np.frombuffer(content, RECORD_DTYPE, (len(content) - 12288) // 64, 12288)
        done = fields(draw, records)
    path.write_bytes(content)
    return f"{path.name}: {done}"


def fields(draw: random.Random, rows: Any) -> str:
    used = np.flatnonzero(rows["stage"]) if "stage" in rows.dtype.names else np.arange(len(rows))
    chosen = (
        used[:: draw.choice((1, 2, 10))]
        if draw.random() < 0.5
        else used[[draw.randrange(len(used))]]
    )
    name, number = draw.choice(rows.dtype.names), draw.choice(NUMBERS)
    number = (
        draw.choice((float("nan"), float("inf"), 1e308, -1.0))
        if rows.dtype[name].kind == "f"
        else number
    )
    with np.errstate(all="ignore"):
        rows[name][chosen] = np.array(number).astype(rows.dtype[name], casting="unsafe")
    return f"{name} = {number} in {len(chosen)} rows"


def gauges(draw: random.Random, run: Path, _: Path) -> str:
    from feedline.profiler.samplers.gauge_file import GAUGES_HEADER
    from feedline.profiler.samplers.gauge_reader import _ROW_DTYPE

    path = pick(draw, run, "gauges.bin")
    content = bytearray(path.read_bytes())
    rows = np.frombuffer(
        content,
        _ROW_DTYPE,
        (len(content) - GAUGES_HEADER.size) // _ROW_DTYPE.itemsize,
        GAUGES_HEADER.size,
    )
    done = fields(draw, rows)
    path.write_bytes(content)
    return done


Way = Callable[[random.Random, Path, Path], str]
WAYS: dict[Way, int] = {
    flipped: 10, truncated: 5, deleted: 3, swapped: 5, doubled: 3, special: 7, closed: 2, grown: 2, edited: 25, texted: 4, columns: 20,
    described: 15, raw: 12, gauges: 4,
}  # fmt: skip
LAST = (grown, special, closed)  # no other way gets through what they leave

"""Serves files over sockets and answers late, as a store in another data center does. It prints its port.

    late_server.py --ms 8

A request is the length of a path (4 bytes, little-endian) and the path; an answer is the length of the file and the file. An answer takes
a lognormal time, the same for each request of a name whoever asks: that of a slow object is slow for all.
"""

import argparse
import asyncio
import functools
import random
import struct
from pathlib import Path

SIGMA = 0.5  # of the logarithm of an answer's time


@functools.cache
def content(name: str) -> bytes:
    return Path(name).read_bytes()


def late_s(name: str, median_s: float) -> float:
    return median_s * random.Random(name).lognormvariate(0, SIGMA)


async def serve(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, median_s: float
) -> None:
    try:
        while True:
            (length,) = struct.unpack("<I", await reader.readexactly(4))
            name = (await reader.readexactly(length)).decode()
            await asyncio.sleep(late_s(name, median_s))
            answer = content(name)
            writer.write(struct.pack("<I", len(answer)) + answer)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def run(median_s: float) -> None:
    server = await asyncio.start_server(
        lambda reader, writer: serve(reader, writer, median_s), "127.0.0.1", 0
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ms", type=float, default=8, help="median time of an answer")
    try:
        asyncio.run(run(parser.parse_args().ms / 1e3))
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()

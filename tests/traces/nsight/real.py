"""Exports of other people's programs, beside the checkout, and SQL by hand that says what is in
them.
"""

import sqlite3

from needs import real_traces

#: The length of a union of intervals: each adds what lies after the latest end of all before it.
UNION = """
WITH ordered AS (
    SELECT start, end, MAX(end) OVER (ORDER BY start, end ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reached FROM ({pieces})
)
SELECT COALESCE(SUM(MAX(0, end - MAX(start, COALESCE(reached, start)))), 0) FROM ordered
"""
WORK = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")


def file(name: str) -> str:
    (path,) = real_traces(f"nsys/{name}")
    return str(path)


class Asked:
    """Figures of one process on one device, in whole ns."""

    def __init__(self, path: str, process: int, device: int) -> None:
        self._connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
        self._connection.text_factory = bytes
        here = f"globalPid / 16777216 % 16777216 = {process} AND deviceId = {device}"
        every = " UNION ALL ".join(f"SELECT start, end FROM {table} WHERE {here}" for table in WORK)
        named = (
            f"{WORK[0]} JOIN StringIds ON StringIds.id = shortName WHERE {here} AND lower(value)"
        )
        moved, computed = (
            f"SELECT start, end FROM {named} LIKE 'nccl%'",
            f"SELECT start, end FROM {named} NOT LIKE 'nccl%'",
        )
        self.busy = self._number(UNION.format(pieces=every))
        self.communication = self._number(UNION.format(pieces=moved))
        self.compute = self._number(UNION.format(pieces=computed))
        self.overlap = (
            self.communication
            + self.compute
            - self._number(UNION.format(pieces=f"{moved} UNION ALL {computed}"))
        )
        self.span = self._number(f"SELECT MAX(end) - MIN(start) FROM ({every})")
        self.copied_bytes = self._number(f"SELECT SUM(bytes) FROM {WORK[1]} WHERE {here}")
        self.kernels = self._number(f"SELECT COUNT(*) FROM {WORK[0]} WHERE {here}")
        self._connection.close()

    def _number(self, query: str) -> int:
        return int(self._connection.execute(query).fetchone()[0])

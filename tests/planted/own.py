"""What is said of a training itself: other programs come and go on the machine of these tests, and
a finding that names them is true.
"""

from collections.abc import Iterable
from typing import Any

OF_OTHERS = "busy_neighbors"


def own(findings: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The findings of a report, without the one of other programs."""
    return [finding for finding in findings if finding["cause"] != OF_OTHERS]

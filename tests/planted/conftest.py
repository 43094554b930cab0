"""benchmarks/faults has the planted faults and what is true of them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

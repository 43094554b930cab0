"""``python -m feedline``."""

import sys

from feedline.cli import main

if __name__ == "__main__":
    sys.exit(main())

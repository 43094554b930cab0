"""What a batch eight times as large costs a small training, and what each fix gives back: `--help` says how it is measured.

python benchmarks/acceptance_table.py --seeds 5 --json table.json -o convergence-table.svg
"""

from acceptance.command import main

if __name__ == "__main__":
    raise SystemExit(main())

"""``feedline converge verify``, the former name of ``feedline verify --fix NAME=VALUE``."""

import argparse

from feedline.cli.converge.by_seed import verify_by_seed
from feedline.cli.output import check_json
from feedline.cli.verify import Verify, add_arms, add_deciding


class ConvergeVerify(Verify):
    """Test whether a fix for large batches helps a training, by seed and against a control.

    Former name of `feedline verify --fix NAME=VALUE`; see `feedline verify --help`.

    Examples:
        feedline converge verify --fix warmup=5ep -- train.py --seed {seed} --output-dir out/{arm}-{seed}
        feedline converge verify --fix ghost_bn=32 --checkpoint a.pt -- train.py --resume {checkpoint}
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("program", nargs=argparse.REMAINDER, metavar="-- SCRIPT ARGS", help="training script and its arguments")
        add_arms(parser, fix=True)
        add_deciding(parser)

    def run(self, args: argparse.Namespace) -> int:
        check_json(args)
        return verify_by_seed(args, args.program[1:] if args.program[:1] == ["--"] else args.program)

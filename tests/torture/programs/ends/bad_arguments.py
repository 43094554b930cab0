"""argparse refuses the arguments, with the program's own name in the usage."""

import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
parser.parse_args()

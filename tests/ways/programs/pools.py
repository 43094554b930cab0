"""multiprocessing.Pool and concurrent.futures: each worker of a pool trains once."""

import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor

import counted


def job(number):
    counted.meet(number, 2)
    counted.train(f"job{number}", steps=6 + 3 * number)


if __name__ == "__main__":
    if sys.argv[1] == "pool":
        with multiprocessing.Pool(2) as pool:
            pool.map(job, range(2), chunksize=1)
    else:
        with ProcessPoolExecutor(2) as executor:
            list(executor.map(job, range(2)))

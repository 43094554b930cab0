"""joblib's processes (loky) train, one training each."""

import counted
from joblib import Parallel, delayed


def job(number):
    import counted  # loky sends the function by value, without the globals of its module

    counted.meet(number, 2)
    counted.train(f"job{number}", steps=6 + 3 * number)


if __name__ == "__main__":
    Parallel(n_jobs=2)(delayed(job)(number) for number in range(2))
    print("both:", len(list(counted.SAID.iterdir())))

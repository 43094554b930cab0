"""Two trainings as tasks of a local Ray."""

import logging

import ray


@ray.remote(num_cpus=1)
def job(number):
    import counted

    counted.meet(number, 2)
    counted.train(f"job{number}", steps=6 + 3 * number)


if __name__ == "__main__":
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        logging_level=logging.ERROR,
        log_to_driver=False,
        object_store_memory=80_000_000,
    )
    ray.get([job.remote(number) for number in range(2)])

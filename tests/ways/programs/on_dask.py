"""Two trainings as tasks of a local Dask cluster."""

from dask.distributed import Client, LocalCluster


def job(number):
    import counted

    counted.meet(number, 2)
    counted.train(f"job{number}", steps=6 + 3 * number)


if __name__ == "__main__":
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        client.gather(client.map(job, range(2)))

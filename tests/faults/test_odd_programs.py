"""Programs that do what feedline did not think of."""

import pytest

LOOP = """
    if __name__ == "__main__":
        torch.manual_seed(1)
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for epoch in range(2):
            for x in loader():
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
        print("trained")
"""


def check_trained(workshop, script, steps, samples):
    done = workshop.recorded_warm(script)

    assert (done.returncode, done.stdout, done.stderr) == (0, "trained\n", "")
    report = workshop.report()
    assert (report["throughput"]["steps"], report["throughput"]["samples"]) == (steps, samples)
    return report


def test_a_loader_that_wraps_the_iterator_of_its_base(workshop):
    script = workshop.write(
        "train.py",
        """
        import torch
        from torch.utils.data import DataLoader

        class Scaled(DataLoader):
            def __iter__(self):
                for batch in super().__iter__():
                    yield batch * 0.5

        def loader():
            return Scaled(torch.ones(32, 4), batch_size=4, num_workers=1)
        """
        + LOOP.replace("\n", "\n    "),
    )

    report = check_trained(workshop, script, steps=16, samples=64)

    assert [(loader["kind"], loader["batches"]) for loader in report["loaders"]] == [("Scaled", 16)]
    assert report["workers"]["batches"] == 16


def test_a_loader_that_iterates_in_a_way_of_its_own(workshop):
    script = workshop.write(
        "train.py",
        """
        import torch
        from torch.utils.data import DataLoader

        class Own(DataLoader):
            def __iter__(self):
                return iter(self.dataset.split(4))

        def loader():
            return Own(torch.ones(32, 4))
        """
        + LOOP.replace("\n", "\n    "),
    )

    report = check_trained(workshop, script, steps=16, samples=0)

    assert report["loaders"] == []
    assert report["step"]["stages"]["forward"] > 0


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_modules_called_as_ours_lie_beside_the_script(workshop, method):
    for name in ("profiler.py", "analysis/__init__.py", "pipelines/__init__.py"):
        workshop.write(name, "whose = 'the user'")
    workshop.write(
        "analysis/data.py",
        "import profiler, torch\ndef numbers(): return [torch.ones(4) for x in range(16) if "
        "profiler.whose]",
    )
    script = workshop.write(
        "train.py",
        f"""
        import analysis.data, pipelines, profiler, torch
        from torch.utils.data import DataLoader, Dataset

        class Numbers(Dataset):
            def __len__(self):
                return 16

            def __getitem__(self, index):
                import analysis, profiler
                assert profiler.whose == analysis.whose == pipelines.whose == "the user"
                return analysis.data.numbers()[index]

        def loader():
            return DataLoader(Numbers(), batch_size=4, num_workers=1, multiprocessing_context={method!r})
        """
        + LOOP.replace("\n", "\n    "),
    )

    report = check_trained(workshop, script, steps=8, samples=32)

    assert report["workers"]["batches"] == 8


def test_a_data_set_and_batches_that_raise_when_they_are_looked_at(workshop):
    script = workshop.write(
        "train.py",
        """
        import torch
        from torch.utils.data import DataLoader, IterableDataset

        class Batch(list):
            def __len__(self):
                raise RuntimeError("do not ask")

            @property
            def data(self):
                raise RuntimeError("do not look")

        class Shy(IterableDataset):
            def __iter__(self):
                return iter([Batch([torch.ones(4)])] * 8)

            def __len__(self):
                raise RuntimeError("do not count")

            def __getattr__(self, name):
                raise RuntimeError(f"no {name}")

        def loader():
            return (batch[0] for batch in DataLoader(Shy(), batch_size=None, collate_fn=lambda batch: batch))
        """
        + LOOP.replace("\n", "\n    "),
    )

    check_trained(workshop, script, steps=16, samples=64)  # the first dimension of a tensor


@pytest.mark.long
def test_a_loader_is_pickled_while_another_starts_its_workers(workshop):
    script = workshop.write(
        "train.py",
        """
        import torch
        from torch.utils.data import DataLoader, Dataset

        class Inner(Dataset):
            def __len__(self):
                return 4

            def __getitem__(self, index):
                return torch.ones(4)

        class Outer(Inner):
            def __getstate__(self):
                return {"sum": sum(x.sum().item() for x in DataLoader(Inner(), num_workers=1))}

        def loader():
            return DataLoader(Outer(), batch_size=2, num_workers=1, multiprocessing_context="spawn")
        """
        + LOOP.replace("\n", "\n    "),
    )

    check_trained(workshop, script, steps=4, samples=8 + 8)  # of both loaders


def test_a_library_that_only_a_worker_imports_leaves_the_manifest_alone(workshop):
    script = workshop.write(
        "train.py",
        """
        import torch
        from torch.utils.data import DataLoader, Dataset

        class Pictures(Dataset):
            def __len__(self):
                return 16

            def __getitem__(self, index):
                import PIL.Image
                return torch.ones(4)

        def loader():
            return DataLoader(Pictures(), batch_size=4, num_workers=2)
        """
        + LOOP.replace("\n", "\n    "),
    )

    report = check_trained(workshop, script, steps=8, samples=32)

    assert [(loader["kind"], loader["batches"]) for loader in report["loaders"]] == [
        ("DataLoader", 8)
    ]
    assert {"optimizer", "autograd", "fetcher"} <= {
        hook["name"] for hook in report["hooks"] if hook["attached"]
    }

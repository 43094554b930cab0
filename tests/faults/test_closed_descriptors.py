"""Programs that close every descriptor, ours too, and get our numbers for files of their own."""

from faults.conftest import Workshop


def test_files_under_descriptor_numbers_that_were_ours_stay_as_they_are(workshop: Workshop) -> None:
    script = workshop.write(
        "train.py",
        """
        import os, time, torch
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def train(steps):
            for _ in range(steps):
                model(torch.ones(8, 4)).mean().backward()
                optimizer.step()

        train(20)
        os.closerange(3, 1 << 16)
        files = [os.open(f"own{number}", os.O_RDWR | os.O_CREAT) for number in range(40)]
        for file in files:
            os.write(file, b"mine")
        train(1500)  # segments grow
        time.sleep(1.2)  # the gauges are read
        print(all(os.pread(file, 100, 0) == b"mine" for file in files))
        """,
    )
    done = workshop.recorded_warm(script)

    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
    assert {path.read_bytes() for path in workshop.folder.glob("own*")} == {b"mine"}
    assert workshop.report()["ranks"]["0"]["steps"] > 1500

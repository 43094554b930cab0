"""A tool that listens sees a whole training: the same names as the report, in the main process and
in every worker.
"""

import pytest

PROGRAM = """
    import io, os, sys
    import torch
    from PIL import Image
    from torch.utils.data import DataLoader
    import feedline

    class Pictures(torch.utils.data.Dataset):
        def __init__(self):
            file = io.BytesIO()
            Image.new("RGB", (8, 8)).save(file, "JPEG")
            self.jpeg = file.getvalue()
        def __len__(self):
            return 8
        def __getitem__(self, index):
            image = Image.open(io.BytesIO(self.jpeg)).resize((4, 4))
            return torch.tensor([sum(image.getpixel((0, 0)))], dtype=torch.float32)

    if __name__ == "__main__":
        with feedline.record(sys.argv[0] + ".run"):
            model = torch.nn.Linear(1, 1)
            optimizer = torch.optim.SGD(model.parameters(), 1e-6)
            for batch in DataLoader(Pictures(), 4, num_workers=1, multiprocessing_context="METHOD"):
                with feedline.stage("mixup"):
                    pass
                model(batch).sum().backward()
                optimizer.step()
        print(os.getpid())
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_the_training_and_its_worker_push_their_stages(under_tool, warm_python, method):
    seen = under_tool(PROGRAM.replace("METHOD", method), warm_python)

    main = int(seen.stdout.split()[-1])
    of_main, of_worker = (
        [call for call in seen.calls if (call.pid == main) == is_main] for is_main in (True, False)
    )
    names = [{call.name for call in calls if call.what == "push"} for calls in (of_main, of_worker)]
    assert {"epoch", "next", "mixup", "forward", "backward", "optimizer"} <= names[0]
    assert {"fetch", "sample", "read", "decode", "augment", "collate"} <= names[1]
    assert {call.domain for call in seen.calls} == {"feedline"}
    assert sum(call.name == "sample" for call in of_worker) == 8  # a tool sees every sample
    for calls in (of_main, of_worker):
        assert sum(call.what == "push" for call in calls) == sum(
            call.what == "pop" for call in calls
        )

"""Tools that restore what they find (unittest.mock, monkeypatch) run through the whole training, in
the wrong order too.
"""

from unittest import mock

import torch
from tiny import digest, loader, network, train

net = network()
with mock.patch.object(torch.Tensor, "to", return_value=5) as to:
    print(torch.ones(2).to(torch.float64), to.call_args)
with mock.patch("torch.save") as save:
    torch.save(net, "never")
print(save.call_args == mock.call(net, "never"))
first = mock.patch.object(torch.nn.Module, "__call__", torch.nn.Module._call_impl)
second = mock.patch("torch.autograd.backward", torch.autograd.backward)
first.start()
second.start()
train(net)
first.stop()
train(net, loader(num_workers=1))
second.stop()
with mock.patch("builtins.open", mock.mock_open(read_data="mocked")):
    print(open("anything").read())
with (
    mock.patch("time.perf_counter", return_value=0.0),
    mock.patch("time.time", return_value=0.0),
    mock.patch("os.getpid", return_value=1),
):
    train(net)
digest(net)

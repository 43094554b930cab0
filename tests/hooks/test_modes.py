"""Modes and tensor subclasses of the program see what they see without feedline: no operation of
ours, no question for a shape.
"""

import textwrap
from pathlib import Path

from warm_python import WarmPython

SEES = """
    import torch, warnings, collections
    from torch import nn
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.overrides import TorchFunctionMode
    seen=collections.Counter(); fseen=collections.Counter()
    class D(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen[str(func)]+=1; return func(*args, **(kwargs or {}))
    class F(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            fseen[getattr(func,'__qualname__',str(func))+str(getattr(func,'__self__','')) [:40]]+=1; return func(*args, **(kwargs or {}))
    class Sub(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            fseen['sub '+getattr(func,'__name__',str(func))+str(getattr(func,'__self__',''))[:40]]+=1
            return super().__torch_function__(func, types, args, kwargs or {})
    torch.manual_seed(0)
    m=nn.Sequential(nn.Linear(4,4),nn.ReLU(),nn.Linear(4,1)); crit=nn.MSELoss()
    o=torch.optim.SGD(m.parameters(),0.1)
    def step(x, acc=1):
        for _ in range(acc):
            crit(m(x), torch.zeros(8,1)).backward()
        torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        o.step(); o.zero_grad(set_to_none=False)
        with torch.no_grad(): crit(m.eval()(x), torch.zeros(8,1)); m.train()
    for mode in (D, F):
        with mode():
            for i in range(6): step(torch.ones(8,4), acc=2)
            torch.ones(2).to(torch.float64)
    for i in range(6): step(torch.ones(8,4).as_subclass(Sub))
    sc=torch.amp.GradScaler('cpu')
    with D():
        for i in range(4):
            sc.scale(crit(m(torch.ones(8,4)), torch.zeros(8,1))).backward(); sc.step(o); sc.update(); o.zero_grad()
    from torch.utils.data import DataLoader, TensorDataset
    with F():
        for b in DataLoader(TensorDataset(torch.ones(8,4)), batch_size=4): pass
    with D():
        for b in DataLoader(TensorDataset(torch.ones(8,4)), batch_size=4): pass
    with warnings.catch_warnings(record=True) as w:
        warnings.simplefilter('always')
        t=torch.jit.trace(nn.Linear(4,2), torch.ones(3,4))
    print([str(x.category) for x in w]); print(str(t.graph))
    for k in sorted(seen): print(k, seen[k])
    for k in sorted(fseen): print('F', k, fseen[k])
"""


def test_modes_subclasses_and_traces_see_the_same_calls(
    tmp_path: Path, warm_python: WarmPython
) -> None:
    script = tmp_path / "sees.py"
    script.write_text(textwrap.dedent(SEES))
    plain = warm_python.run(script, folder=tmp_path)
    under = warm_python.run(
        "-m", "feedline", "run", "-q", "-o", tmp_path / "run", script, folder=tmp_path
    )

    assert plain.returncode == 0, plain.stderr
    assert "aten._foreach_norm" in plain.stdout
    assert (under.returncode, under.stdout) == (0, plain.stdout), under.stderr

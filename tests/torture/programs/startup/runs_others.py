"""It runs other files and modules with runpy and exec, which train; one of them exits."""

import pathlib
import runpy
import sys

from tiny import digest, train

SOURCE = "from tiny import digest, train\nnet = train()\ndigest(net)\n"
pathlib.Path("other.py").write_text(SOURCE)
print(
    sorted(
        set(runpy.run_path("other.py", {"given": 1}, run_name="__main__"))
        & {"net", "given", "__name__"}
    )
)
print(runpy.run_module("other", run_name="other")["__name__"], sys.argv)
space = {"__name__": "made"}
exec(compile(SOURCE, "made.py", "exec"), space)
print(eval("sum(p.numel() for p in net.parameters())", space))
pathlib.Path("leaves.py").write_text("import sys\nsys.exit(21)\n")
digest(train())
runpy.run_path("leaves.py", run_name="__main__")

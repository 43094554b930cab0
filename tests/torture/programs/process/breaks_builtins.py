"""It replaces print, open, len, isinstance and the name Exception in builtins while it trains."""

import builtins
import io

from tiny import digest, network, train

said, original = [], dict(vars(builtins))
builtins.print = lambda *args, **kwargs: said.append(args)
builtins.open = lambda *args, **kwargs: io.StringIO("nothing")
net = train(network())
print("hidden")
opened = open("x").read()
builtins.print, builtins.open = original["print"], original["open"]
print(said, opened)
digest(net)

"""Every kind of hook on modules, with kwargs, always_call and prepend; they change inputs, outputs
and gradients.
"""

from tiny import digest, loader, network, sgd, step

net = network()
optimizer = sgd(net)
calls = []


def note(name, value=None):
    calls.append(name)
    return value


net[0].register_forward_pre_hook(lambda module, args: note("pre", (args[0] * 2,)))
net[0].register_forward_pre_hook(
    lambda module, args, kwargs: note("pre with kwargs"), with_kwargs=True, prepend=True
)
net[0].register_forward_hook(
    lambda module, args, output: note("post", output * 0.5), always_call=True
)
net[2].register_full_backward_pre_hook(lambda module, grads: note("backward pre", (grads[0] * 2,)))
net[0].register_full_backward_hook(lambda module, grads_in, grads_out: note("backward"))
net.register_full_backward_hook(lambda module, grads_in, grads_out: note("backward of all"))
net.register_state_dict_pre_hook(lambda *_: note("state"))
for x in loader():
    step(net, optimizer, x)
net.state_dict()
print(calls)
digest(net)

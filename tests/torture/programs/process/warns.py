"""Every warning is an error, in the training process and its workers."""

import warnings

from tiny import digest, loader, network, train

warnings.simplefilter("error")
net = train(network(), loader(num_workers=1))
try:
    warnings.warn("mine", stacklevel=1)
except UserWarning as error:
    print(error)
digest(net)

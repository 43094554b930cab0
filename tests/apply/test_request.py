"""What ``--fix`` may say."""

import pytest

from feedline.convergence.apply import parse
from feedline.profiler.errors import FixError


def test_fixes_are_read_in_the_order_they_are_asked_for():
    assert [request.fix.name for request in parse("warmup=5ep,lr_rule=sqrt:8,ghost_bn=32")] == ["warmup", "lr_rule", "ghost_bn"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "names no fix"),
        ("warm=5ep", "there is no fix 'warm': there are"),
        ("warmup=five", "warmup=five: .*20000"),
        ("warmup=5ep,warmup=3ep", "named twice"),
        ("longer=256:b0=32:bc=144", "cannot be applied from outside; write it into the program:\n\n.*"),
        ("lamb=0.04,adamw=0.01", "one at a time"),
        ("lamb=0.04,lr_rule=sqrt", "names its own rate"),
    ],
)
def test_what_cannot_be_is_an_error_that_says_the_way_out(text, says):
    with pytest.raises(FixError, match=says) as raised:
        parse(text)
    assert raised.value.exit_code == 64

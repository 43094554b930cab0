"""What ``--fix`` may say."""

import pytest

from feedline.convergence.apply import parse_fixes
from feedline.profiler.errors import FixError


def test_fixes_are_read_in_the_order_they_are_asked_for():
    assert [
        request.fix.name for request in parse_fixes("warmup=5ep,lr_rule=sqrt:8,ghost_bn=32")
    ] == ["warmup", "lr_rule", "ghost_bn"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "--fix is empty"),
        ("warm=5ep", "unknown fix 'warm'; the fixes are"),
        ("warmup=five", "warmup=five: .*20000"),
        ("warmup=5ep,warmup=3ep", "given twice"),
        ("longer=256:b0=32:bc=144", "cannot be applied from outside; add it to the program:\n\n.*"),
        ("lamb=0.04,adamw=0.01", "use only one"),
        ("lamb=0.04,lr_rule=sqrt", "sets its own learning rate"),
    ],
)
def test_what_cannot_be_is_an_error_that_says_the_way_out(text, message):
    with pytest.raises(FixError, match=message) as raised:
        parse_fixes(text)
    assert raised.value.exit_code == 64

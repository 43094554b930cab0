"""docs/rules.md has a place for each rule, which a heading or the table of the rules for traces
names.
"""

import re

from docs.pages import ROOT, page

from feedline.analysis.rules import BY_ID

PAGE = page(ROOT / "docs" / "rules.md")
ROW = re.compile(r"^\| `(\w+)`(?: \(info\))? \|", re.MULTILINE)


def described() -> set[str]:
    """Ids in headings, and in the first column of the table of the rules for traces."""
    headings = {
        word
        for line in PAGE.text.splitlines()
        if line.startswith("## ")
        for word in re.split(r"[ ,]+", line)
    }
    return headings | set(ROW.findall(PAGE.text.partition("## Rules for traces\n")[2]))


def test_every_rule_has_a_section():
    assert len(BY_ID) > 20
    assert sorted(set(BY_ID) - described()) == []

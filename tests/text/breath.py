"""What can be read in one breath: a finding's sentences."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from feedline.analysis.ledger.finding import Finding
from feedline.analysis.text.sentences import MAX_BRACKETS, MAX_WORDS

#: Words of a sentence that is shown only to those who ask for all of it.
MAX_WORDS_OF_MORE = 30
_BRACKET = re.compile(r"(?<!\S)\(")  # in prose; those of a call follow its name
_FIGURE = re.compile(r"(?<![\w.])\d[\d.,]*(?= (?:%|[mµn]?s\b|[kMGT]?B\b))")  # with a unit


def long_sentences(finding: Finding | Mapping[str, Any]) -> list[str]:
    """What is too long, has too many brackets or figures, or is two sentences in one."""
    said = asdict(finding) if isinstance(finding, Finding) else finding
    first = [said.get("message") or said.get("says", ""), said["fix"]]
    more = [*said["more"], *said["fix_more"], said["condition"]]
    return [
        f"{said.get('rule_id') or said.get('cause')}: {problem}: {text}"
        for texts, most in ((first, MAX_WORDS), (more, MAX_WORDS_OF_MORE))
        for text in texts
        for problem in _problems(text, most)
    ] + ([f"figures: {first[0]}"] if len(_FIGURE.findall(first[0])) > 2 else [])


def of_report(numbers: Any) -> Iterator[Mapping[str, Any]]:
    """The findings in a report's JSON, of whatever depth."""
    if isinstance(numbers, list):
        for item in numbers:
            yield from of_report(item)
    elif isinstance(numbers, dict):
        if "fix_more" in numbers:
            yield numbers
        for item in numbers.values():
            yield from of_report(item)


def _problems(text: str, most: int) -> Iterator[str]:
    if len(text.split()) > most:
        yield f"{len(text.split())} words"
    if len(_BRACKET.findall(text)) > MAX_BRACKETS:
        yield "brackets"
    if re.search(r";|\.\.? [A-Z]", text):
        yield "two sentences"


def said(finding: Finding) -> str:
    """All of what a finding says of its cause, a sentence a line."""
    return "\n".join([finding.message, *finding.more])


def advised(finding: Finding) -> str:
    """All of what it says of its fix."""
    parts: Iterable[str] = (finding.fix, finding.place, finding.condition, *finding.fix_more)
    return "\n".join(filter(None, parts))

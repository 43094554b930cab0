"""No link of a page leads nowhere, and every page can be found."""

from pathlib import Path
from urllib.parse import unquote

import pytest
from docs.pages import PATHS, ROOT, Page, page

SMALL = 150_000  # bytes of a picture


def broken(found: Page) -> list[str]:
    """Links to files that are not there, or to headings that the page does not have."""
    return [link for link in found.links() if not leads_somewhere(found, link)]


def leads_somewhere(found: Page, link: str) -> bool:
    if link.startswith(("http://", "https://", "mailto:")):
        return True  # the web is not asked
    name, _, anchor = unquote(link).partition("#")
    target = found.path.parent / name if name else found.path
    if not target.exists():
        return False
    return (
        not anchor or anchor in (found if target == found.path else page(target.resolve())).anchors
    )


@pytest.mark.parametrize("path", PATHS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(path):
    assert broken(page(path)) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path):
    (tmp_path / "other.md").write_text("# One heading, `twice`\n\n## The same\n\n## The same\n")
    text = (
        "[a](other.md#one-heading-twice) [b](other.md#the-same-1) [c](missing.md) "
        "[d](other.md#the-same-2) ![e](no.svg) [f](#g)"
    )
    found = Page(tmp_path / "page.md", text + "\n\n```{toctree}\n:hidden:\n\nother\nnone\n```\n")

    assert broken(found) == ["missing.md", "other.md#the-same-2", "no.svg", "#g", "none.md"]


def test_every_page_is_in_the_list_for_those_who_read_the_repository():
    docs = ROOT / "docs"
    listed = {
        (docs / link.partition("#")[0]).resolve() for link in page(docs / "README.md").links()
    }
    pages = {
        path for path in docs.glob("*.md") if path.name not in ("README.md", "commands.md")
    } | set((docs / "jobs").glob("*.md"))

    assert sorted(str(path.relative_to(ROOT)) for path in pages - listed) == []


def test_every_measurement_is_listed():
    index = page(ROOT / "docs" / "measured" / "index.md")
    listed = {Path(link).name for link in index.links()}

    assert (
        sorted(
            path.name
            for path in index.path.parent.glob("*.md")
            if path.name not in listed | {"index.md"}
        )
        == []
    )


def test_pictures_are_small_and_fetch_nothing():
    pictures = sorted((ROOT / "docs" / "pictures").iterdir())

    assert [path.name for path in pictures if path.stat().st_size > SMALL] == []
    drawn = {path.name: path.read_text() for path in pictures if path.suffix == ".svg"}
    assert [name for name, text in drawn.items() if "url(http" in text or "href=" in text] == []

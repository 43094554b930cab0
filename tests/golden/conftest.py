"""What the reports of stored runs said when they were last looked at."""

import pytest
from golden.pinned import Pinned


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--regenerate",
        action="store_true",
        help="take what the reports say now for what they should say",
    )


@pytest.fixture
def pinned(request: pytest.FixtureRequest) -> Pinned:
    return Pinned(regenerate=request.config.getoption("--regenerate", default=False))


@pytest.fixture(scope="module", autouse=True)
def terminal_of_80_columns():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "80")
        patch.delenv("FORCE_COLOR", raising=False)
        yield

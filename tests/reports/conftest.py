"""A real Chromium, for what only a browser can tell."""

import os
import shutil
from collections.abc import Iterator

import pytest
from reports.browser import Browser

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync"
)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("chromium or chromedriver is not installed (Debian packages chromium, chromium-driver)")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    for flag in [*FLAGS.split(), f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"]:
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER, log_output=os.devnull))
    try:
        yield Browser(driver, tmp_path_factory.mktemp("reports"))
    finally:
        driver.quit()

"""One Chromium, driven over its DevTools protocol."""

import json
from pathlib import Path
from typing import Any

from report.made_up import VARIANTS

from feedline.analysis.report import write


class Browser:
    """One Chromium; ``open`` shows a report in it, at a width and with media features."""

    def __init__(self, driver: Any, folder: Path) -> None:
        self.driver = driver
        self._folder = folder

    def open(self, variant: str, width: int = 1280, scheme: str = "light", media: str = "") -> None:
        path = self._folder / f"{variant.replace(' ', '_')}.html"
        if not path.exists():
            write(VARIANTS[variant](), path)
        self.show(path, width, scheme, media)

    def show(self, path: Path, width: int = 1280, scheme: str = "light", media: str = "") -> None:
        """Open any page."""
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        self.resize(width)
        self.command(
            "Emulation.setFocusEmulationEnabled", enabled=True
        )  # a window without a screen may have none
        self.command(
            "Emulation.setEmulatedMedia",
            media=media,
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        self.driver.get(path.as_uri())

    def resize(self, width: int) -> None:
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )

    def command(self, name: str, **arguments: Any) -> Any:
        return self.driver.execute_cdp_cmd(name, arguments)

    def js(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def requests(self) -> list[str]:
        """URLs that the report has asked for since it was opened, its own first."""
        messages = [
            json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")
        ]
        sent = [
            message["params"]
            for message in messages
            if message["method"] == "Network.requestWillBeSent"
        ]
        return [
            request["request"]["url"]
            for request in sent
            if request["documentURL"] == self.driver.current_url
        ]

    def complaints(self) -> list[str]:
        """What the console says since the report was opened."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

"""A real browser for the pages that reports are: the distribution's Chromium, without a window and without a network."""

import json
import os
import shutil
import time

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
DRIVERS = ("chromedriver",)
PATIENCE = 120  # seconds; a loaded machine without a graphics card draws slowly


def find_program(names):
    return next((path for path in map(shutil.which, names) if path), None)


@pytest.fixture(scope="session")
def driver():
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    browser, service = find_program(BROWSERS), find_program(DRIVERS)
    if browser is None or service is None:
        pytest.skip(f"needs a browser ({', '.join(BROWSERS)}) and {DRIVERS[0]} on the PATH, and downloads none")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for argument in (
        "--headless=new",
        "--window-size=1000,760",
        "--use-angle=swiftshader",
        "--enable-unsafe-swiftshader",
    ):
        options.add_argument(argument)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # Chromium's sandbox does not start for root
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    running = webdriver.Chrome(options=options, service=webdriver.ChromeService(service))
    running.set_script_timeout(PATIENCE)
    running.execute_cdp_cmd("Network.enable", {})
    offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
    running.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
    yield running
    running.quit()


class Page:
    """A report in the browser, with the actions of a reader."""

    def __init__(self, driver, path, *, dark=False, still=True):
        self.driver = driver
        for kind in ("browser", "performance"):
            driver.get_log(kind)  # remove the messages of the previous page
        features = {"prefers-color-scheme": "dark" if dark else "light"}
        features["prefers-reduced-motion"] = "reduce" if still else "no-preference"
        feature_list = [{"name": name, "value": value} for name, value in features.items()]
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": feature_list})
        driver.get(path.as_uri())
        self.wait_until("return document.documentElement.dataset.ready === 'yes'")

    def js(self, code, *args):
        return self.driver.execute_script(code, *args)

    def wait_until(self, code, *args):
        """Wait for code that returns something true, and return it."""
        end = time.monotonic() + PATIENCE
        while not (value := self.js(code, *args)):
            assert time.monotonic() < end, f"waited {PATIENCE} s for: {code}\n{self.driver.get_log('browser')}"
            time.sleep(0.05)
        return value

    def wait_for_frames(self):
        """Wait until two frames are drawn."""
        self.driver.execute_async_script(
            "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done()))"
        )

    def errors(self):
        return [entry for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]

    def requests(self):
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]

    def text(self, id):
        return self.js("return document.getElementById(arguments[0]).innerText", id)

    def element(self, id):
        return self.driver.find_element("id", id)

    def lines(self, trace):
        """Both ends of the lines that a trace of the scene draws, [[x, y, z], [x, y, z]] each."""
        return self.js(
            "const t = document.getElementById('scene').data[arguments[0]], lines = [];"
            "for (let k = 0; k + 1 < t.x.length; k += 3)"
            "  lines.push([0, 1].map((e) => [t.x[k + e], t.y[k + e], t.z[k + e]]));"
            "return lines",
            trace,
        )

    def on_screen(self, side):
        """Where the drawn points of a side are in the window, in pixels: from the scene's own matrices."""
        return self.js(
            """
            const scene = document.getElementById("scene"), inner = scene._fullLayout.scene._scene;
            const { model, view, projection } = inner.glplot.cameraParams, scale = inner.dataScale;
            const place = scene.getBoundingClientRect(), trace = scene.data[2 + arguments[0]];
            const times = (m, v) => [0, 1, 2, 3].map((r) => m[r] * v[0] + m[4 + r] * v[1] + m[8 + r] * v[2] + m[12 + r] * v[3]);
            return Array.from(trace.x).map((_, k) => {
              const start = [trace.x[k] * scale[0], trace.y[k] * scale[1], trace.z[k] * scale[2], 1];
              const [x, y, , w] = [model, view, projection].reduce((v, m) => times(m, v), start);
              return [place.left + ((x / w + 1) / 2) * place.width, place.top + ((1 - y / w) / 2) * place.height];
            });
            """,
            side,
        )

    def point_at(self, x, y):
        """Move the mouse to a place in the window, in two steps."""
        from selenium.webdriver.common.action_chains import ActionChains

        chain = ActionChains(self.driver, duration=0)
        for off in (4, 0):
            chain.w3c_actions.pointer_action.move_to_location(round(x) - off, round(y) - off)
        chain.perform()
        self.wait_for_frames()


@pytest.fixture
def open_page(driver):
    """Open a page: `opened(path, dark=False, still=True)`."""
    return lambda path, **options: Page(driver, path, **options)

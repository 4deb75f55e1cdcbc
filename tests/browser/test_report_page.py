"""Reports in a real browser: they load without errors or network, and the mouse, the slider and the buttons work."""

import io
import math
import warnings

import networkx
import numpy as np
import pytest

import ugw
from ugw.report import View, write

pytestmark = pytest.mark.browser

LINES, FOCUS_LINES = 4, 5  # traces of the scene
APART = """
    return [...document.querySelectorAll("#point li")].every((li) => {
      const [name, mass, share] = ["name", "mass", "share"].map((c) => li.querySelector("." + c).getBoundingClientRect());
      return name.right <= mass.left && mass.right <= share.left;
    })
"""  # what stands beside each other does not overlap
EVIL = "<script>window.hurt = 1</script><img src=x onerror='window.hurt = 2'>"


def cloud(n, d, seed=0):
    return np.random.default_rng(seed).random((n, d))


def planar_case():
    x, y = ugw.Space.from_points(cloud(20, 2)), ugw.Space.from_points(cloud(24, 2, 1))
    return ugw.solve(x, y, rho=0.5, eps=0.01), View(x, "first"), View(y, "second")


def solid_case():
    x, y = ugw.Space.from_points(cloud(20, 3)), ugw.Space.from_points(cloud(16, 3, 1))
    return ugw.solve(x, y, rho=0.5, eps=0.01), View(x, "first"), View(y, "second")


def graph_case():
    ring, grid = networkx.cycle_graph(12), networkx.convert_node_labels_to_integers(networkx.grid_2d_graph(3, 4))
    grid = networkx.relabel_nodes(grid, {k: f"node {k} {EVIL}" for k in grid})
    x, y = ugw.Space.from_graph(ring), ugw.Space.from_graph(grid)
    return ugw.solve(x, y, rho=1.0, eps=0.1), View(x, EVIL, graph=ring), View(y, "grid", graph=grid)


def streamed_case():
    x, y = (ugw.Space.from_points(cloud(k, 3, k), metric="sqeuclidean") for k in (60, 50))
    solver = ugw.AlternateMin(inner=ugw.Sinkhorn(method="streaming"))
    return ugw.solve(x, y, rho=0.5, eps=0.02, solver=solver), View(x, "first"), View(y, "second")


def mesh_case():
    """A sphere, and a longer one, of which only some vertices are kept."""
    turn, rise = np.meshgrid(np.linspace(0, 2 * np.pi, 12, endpoint=False), np.linspace(0.2, np.pi - 0.2, 7))
    vertices = np.stack([np.cos(turn) * np.sin(rise), np.sin(turn) * np.sin(rise), np.cos(rise)], axis=-1).reshape(
        -1, 3
    )
    corner = np.arange(72).reshape(6, 12)
    right, down = np.roll(corner, -1, axis=1), corner + 12
    triangles = [np.stack([corner, right, down], -1), np.stack([right, np.roll(down, -1, axis=1), down], -1)]
    faces = np.concatenate([t.reshape(-1, 3) for t in triangles])
    x, y = (ugw.Space.from_mesh(vertices * size, faces) for size in ([1, 1, 1], [1, 1, 1.6]))
    return ugw.solve(x, y, rho=1.0, eps=0.05), View(x, "sphere", faces=faces), View(y, "egg", faces=faces)


CASES = {"flat": planar_case, "solid": solid_case, "graph": graph_case, "streamed": streamed_case, "mesh": mesh_case}


@pytest.fixture(scope="module")
def report_page(tmp_path_factory):
    """A page of each kind, written once: the path, the result and the views."""
    pages = {}

    def page(name):
        if name not in pages:
            path = tmp_path_factory.mktemp("pages") / f"{name}.html"
            result, x, y = CASES[name]()
            write(result, x, y, path)
            pages[name] = path, result, x, y
        return pages[name]

    return page


def rows_of(result, side):
    plan = result.plan.dense() if result.path == "streaming" else result.plan
    return plan if side == 0 else plan.T


def most_isolated_point(page, side):
    """The drawn point of a side that is farthest from all others in the window, and where."""
    places = np.array(page.on_screen(side) + page.on_screen(1 - side))
    count = len(page.on_screen(side))
    far = np.linalg.norm(places[:count, None] - places, axis=2)
    far[np.arange(count), np.arange(count)] = np.inf
    k = int(far.min(axis=1).argmax())
    return k, places[k]


def listed_matches(page):
    """(name, mass as text) of the matches in the panel."""
    return page.js(
        "return [...document.querySelectorAll('#point li')].map((li) => "
        "[li.querySelector('.name').textContent, li.querySelector('.mass').textContent])"
    )


# -- loading -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_it_loads_without_errors_or_network_and_draws(report_page, open_page, name):
    path, _, x, y = report_page(name)
    page = open_page(path)
    assert page.errors() == []
    assert [url for url in page.requests() if not url.startswith(("data:", "blob:"))] == [path.as_uri()]
    assert page.js("return document.querySelector('h1').textContent") == f"{x.name} → {y.name}"
    assert page.js("return [window.hurt, document.images.length]") == [None, 0]
    assert drawn_share(page) > 0.01


def drawn_share(page):
    """Which part of the scene's pixels differ from their most frequent color."""
    from PIL import Image

    page.wait_for_frames()
    pixels = np.asarray(Image.open(io.BytesIO(page.element("scene").screenshot_as_png)).convert("RGB"), dtype=int)
    flat_pixels = pixels @ [1, 256, 65536]
    return 1 - np.bincount(np.unique(flat_pixels, return_inverse=True)[1].ravel()).max() / flat_pixels.size


def test_a_solve_that_did_not_converge_is_reported_on_top(tmp_path, open_page):
    x, y = ugw.Space.from_points(cloud(20, 2)), ugw.Space.from_points(cloud(24, 2, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ugw.ConvergenceWarning)
        result = ugw.solve(x, y, eps=1e-3, init="product", solver=ugw.AlternateMin(max_iter=2))
    write(result, x, y, tmp_path / "page.html", facts={"rho": 1.0})
    page = open_page(tmp_path / "page.html")
    banner = page.driver.find_element("css selector", ".banner.warning")
    assert banner.is_displayed()
    assert banner.location["y"] < page.element("scene").location["y"]
    assert result.message in banner.text
    assert page.errors() == []


def test_one_point_each_and_a_plan_without_matches(tmp_path, open_page):
    x = ugw.Space.from_points([[0.0, 0.0]])
    write(ugw.solve(x, x, eps=0.1), x, x, tmp_path / "one.html")
    page = open_page(tmp_path / "one.html")
    assert page.text("drawn") == "1 of 1, 100 % of the mass"
    far = ugw.Space.from_distances(100 * (1 - np.eye(5)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ugw.ConvergenceWarning)
        none = ugw.solve(far, ugw.Space.from_distances(1 - np.eye(5)), rho=1e-3, eps=1e-3, init="product")
    write(none, far, far, tmp_path / "none.html")
    page = open_page(tmp_path / "none.html")
    assert page.errors() == []


# -- the mouse ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["flat", "solid", "graph", "streamed"])
def test_pointing_shows_where_the_mass_goes(report_page, open_page, name):
    path, result, x, y = report_page(name)
    page = open_page(path)
    assert "Point at a place" in page.text("point")
    for side, view, other in ((0, x, y), (1, y, x)):
        k, place = most_isolated_point(page, side)
        page.point_at(*place)
        heading = view.labels[k] if view.labels else f"point {k}"
        page.wait_until("return (document.querySelector('#point h3') || {}).textContent === arguments[0]", heading)
        row = rows_of(result, side)[k]
        matches = listed_matches(page)
        assert matches
        expected = np.argsort(-row, kind="stable")[: len(matches)]
        assert [name for name, _ in matches] == [other.labels[j] if other.labels else f"point {j}" for j in expected]
        assert [float(mass) for _, mass in matches] == pytest.approx(row[expected], rel=1e-3)
        assert ("sends" if side == 0 else "receives") in page.text("point")
        check_focus(page, side, k, expected, row)
        assert page.js(APART)
    assert page.js("return window.hurt") is None
    assert page.errors() == []


def check_focus(page, side, k, partners, row):
    """The lines in focus go from the point to its partners, and at the first its mass is written."""
    focused = (
        "const {data, layout} = document.getElementById('scene'), words = layout.scene.annotations.map((a) => a.text);"
        "return data[arguments[0]].x.length === 3 * arguments[1]"
        " && words.some((text) => Math.abs(text - arguments[2]) <= 1e-3 * arguments[2])"
    )
    page.wait_until(focused, FOCUS_LINES, len(partners), row[partners[0]])
    page.wait_for_frames()
    annotations = page.js("return [...document.querySelectorAll('#scene .annotation-text')].map((e) => e.textContent)")
    assert any(np.isclose(float(text), row[partners[0]], rtol=1e-3) for text in annotations if text[0].isdigit())
    places = page.js(
        "const s = document.getElementById('scene').data;"
        "return [2, 3].map((t) => Array.from(s[t].x, (v, k) => [v, s[t].y[k], s[t].z[k]]))"
    )
    for (start, end), j in zip(page.lines(FOCUS_LINES), partners, strict=True):
        assert start == pytest.approx(places[side][k])
        assert end == pytest.approx(places[1 - side][j])


def test_on_a_surface_the_nearest_vertex_is_selected(report_page, open_page):
    path, result, *_ = report_page("mesh")
    page = open_page(path)
    middle = np.mean(page.on_screen(0), axis=0)
    page.point_at(*middle)
    heading = page.wait_until("return (document.querySelector('#point h3') || {}).textContent")
    k = int(heading.removeprefix("point "))
    assert np.linalg.norm(np.array(page.on_screen(0)[k]) - middle) < 120  # pixels; triangles are that large
    matches = listed_matches(page)
    assert [float(mass) for _, mass in matches] == pytest.approx(-np.sort(-result.plan[k])[: len(matches)], rel=1e-3)


def test_the_selection_ends_on_leaving_unless_it_was_clicked(report_page, open_page):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    path, *_ = report_page("flat")
    page = open_page(path)
    k, place = most_isolated_point(page, 0)
    script = "return !!document.querySelector('#point h3')"
    page.point_at(*place)
    page.wait_until(script)
    page.point_at(20, 20)
    page.wait_until("return !document.querySelector('#point h3')")
    page.wait_until("return document.getElementById('scene').data[arguments[0]].x.length === 0", FOCUS_LINES)
    page.point_at(*place)
    page.wait_until(script)
    ActionChains(page.driver).click().perform()
    page.wait_for_frames()
    page.point_at(20, 20)
    assert page.js("return document.querySelector('#point h3').textContent") == f"point {k}"
    ActionChains(page.driver).send_keys(Keys.ESCAPE).perform()
    page.wait_until("return !document.querySelector('#point h3')")


def test_a_point_is_found_by_number_and_by_name(report_page, open_page):
    from selenium.webdriver.common.keys import Keys

    path, result, _, y = report_page("graph")
    page = open_page(path)
    page.element("find").send_keys("7", Keys.ENTER)
    page.wait_until("return (document.querySelector('#point h3') || {}).textContent === '7'")
    assert float(listed_matches(page)[0][1]) == pytest.approx(result.plan[7].max(), rel=1e-3)
    page.js("document.getElementById('find').value = arguments[0]", y.labels[4])
    page.js("const s = document.getElementById('side'); s.value = 1; s.dispatchEvent(new Event('change'))")
    page.wait_until("return (document.querySelector('#point h3') || {}).textContent === arguments[0]", y.labels[4])
    assert float(listed_matches(page)[0][1]) == pytest.approx(result.plan[:, 4].max(), rel=1e-3)
    page.element("find").clear()
    page.element("find").send_keys("nobody", Keys.ENTER)
    page.wait_until("return document.getElementById('point').innerText.includes('no drawn point “nobody”')")


# -- the controls ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["flat", "streamed"])
def test_the_slider_sets_the_number_of_drawn_matches(report_page, open_page, name):
    from selenium.webdriver.common.keys import Keys

    path, result, *_ = report_page(name)
    page = open_page(path)
    pairs = page.js("return JSON.parse(document.getElementById('data').textContent).pairs")
    total, plan = len(pairs["mass"]), rows_of(result, 0)
    slider = page.element("count")
    counted = "return document.getElementById('scene').data[arguments[0]].x.length === 3 * arguments[1]"
    first = len({(i, p.argmax()) for i, p in enumerate(plan)} | {(p.argmax(), j) for j, p in enumerate(plan.T)})
    for key, count in ((None, first), (Keys.HOME, 0), (Keys.ARROW_RIGHT, 1), (Keys.ARROW_RIGHT, 2), (Keys.END, total)):
        if key:
            slider.send_keys(key)
        page.wait_until(counted, LINES, count)
        assert len(page.lines(LINES)) == count
        mass = sum(plan[i, j] for i, j in zip(pairs["i"][:count], pairs["j"][:count], strict=True))
        count_text, share = page.text("drawn").split(", ")
        assert count_text == f"{count} of {total}"
        assert float(share.split(" %")[0]) == pytest.approx(100 * mass / plan.sum(), abs=0.5)
    at = page.js("return JSON.parse(document.getElementById('data').textContent).sides.map((side) => side.at)")
    x, y = (np.array(side).T for side in at)
    for (start, end), i, j in zip(page.lines(LINES), pairs["i"], pairs["j"], strict=True):
        assert start == pytest.approx(x[i])
        assert end == pytest.approx(y[j])


def test_light_and_dark(report_page, open_page):
    path, *_ = report_page("flat")
    looks = []
    for dark in (False, True):
        page = open_page(path, dark=dark)
        for _ in range(2):
            looks.append(current_colors(page))
            page.element("theme").click()
            page.wait_until(
                "return getComputedStyle(document.body).backgroundColor !== arguments[0]", looks[-1]["page"]
            )
            page.wait_for_frames()
        assert page.errors() == []
    light, after_light, dark, after_dark = looks
    assert light == after_dark
    assert dark == after_light
    assert luminance(light["page"]) > 0.8 > 0.2 > luminance(dark["page"])
    assert luminance(light["curve"]) < luminance(dark["curve"])
    assert light["edges"] != dark["edges"]
    page.driver.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "light"}]}
    )
    page.wait_until("return document.documentElement.dataset.theme === 'light'")  # it follows the system


def current_colors(page):
    page.wait_for_frames()
    return page.js(
        "const scene = document.getElementById('scene'), curve = document.getElementById('curve');"
        "return {page: getComputedStyle(document.body).backgroundColor, word: document.getElementById('theme').textContent,"
        " edges: scene.data[0].line.color, curve: getComputedStyle(curve.querySelector('.xtitle')).fill}"
    )


def luminance(color):
    return sum(int(v) for v in color[color.index("(") + 1 : -1].split(",")[:3]) / 765


def test_colors_can_be_the_share_that_is_matched(report_page, open_page):
    path, result, *_ = report_page("solid")
    page = open_page(path)
    colors = "return Array.from(document.getElementById('scene').data[2].marker.color)"
    assert all(str(color).startswith("rgb(") for color in page.js(colors))
    page.js("const s = document.getElementById('color'); s.value = 'share'; s.dispatchEvent(new Event('change'))")
    page.wait_until("return typeof document.getElementById('scene').data[2].marker.color[0] === 'number'")
    assert page.js(colors) == pytest.approx(20 * result.marginals[0], rel=1e-5)
    assert "unmatched" in page.text("legend")


def test_the_scene_rotates_until_a_user_touches_it(report_page, open_page):
    path, *_ = report_page("flat")
    eye = "return document.getElementById('scene').layout.scene.camera.eye"
    page = open_page(path)
    before = page.js(eye)
    for _ in range(3):
        page.wait_for_frames()
    assert page.js(eye) == before  # who prefers reduced motion gets none
    page = open_page(path, still=False)
    assert page.element("turn").get_attribute("aria-pressed") == "true"
    page.wait_until(
        f"const e = ({eye.removeprefix('return ')}); return Math.hypot(e.x - arguments[0], e.y - arguments[1]) > 0.05",
        before["x"],
        before["y"],
    )
    now = page.js(eye)
    assert math.hypot(now["x"], now["y"]) == pytest.approx(math.hypot(before["x"], before["y"]))
    assert now["z"] == pytest.approx(before["z"])
    page.element("turn").click()
    page.wait_until("return document.getElementById('turn').getAttribute('aria-pressed') === 'false'")
    page.wait_for_frames()
    stopped = page.js(eye)
    for _ in range(3):
        page.wait_for_frames()
    assert page.js(eye) == stopped
    assert page.errors() == []


def test_a_narrow_window_has_no_sideways_scrolling(report_page, driver, open_page):
    path, *_ = report_page("graph")
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 380, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    )
    try:
        page = open_page(path)
        assert page.js("return document.documentElement.scrollWidth") <= 380
        left, right = (
            min(p[0] for s in (0, 1) for p in page.on_screen(s)),
            max(p[0] for s in (0, 1) for p in page.on_screen(s)),
        )
        assert 0 < left < right < 380
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

// Interaction of a report: redrawing, the point in focus, rotation, light and dark theme. Loaded after scene.js.

// -- redrawing ---------------------------------------------------------------------------------------------

function redraw() {
  const { camera, aspectratio } = scene.layout.scene; // keep the camera of the user
  const layout = sceneLayout();
  Object.assign(layout.scene, { camera, aspectratio });
  return Plotly.react(scene, traces(), layout, CONFIG);
}

// Replace the traces of matches and the annotations; the traces of the spaces are not changed.
function redrawMatches() {
  const updated = { [LINES]: matchesTrace(+get("count").value) };
  [updated[FOCUS_LINES], updated[FOCUS_ENDS]] = focusTraces();
  const traceIndices = Object.keys(updated).map(Number);
  const update = {};
  for (const key of ["x", "y", "z", "line", "opacity", "marker"]) update[key] = traceIndices.map((k) => updated[k][key]);
  return Plotly.update(scene, update, { "scene.annotations": sceneAnnotations() }, traceIndices);
}

function drawMatches() {
  const count = +get("count").value;
  const part = data.pairs.mass.slice(0, count).reduce((sum, mass) => sum + mass, 0);
  get("drawn").textContent = `${count} of ${data.pairs.i.length}, ${percent(part, data.mass)} of the mass`;
  return redrawMatches();
}

// -- the point in focus -----------------------------------------------------------------------------------

function element(kind, text, className) {
  const node = document.createElement(kind);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  return node;
}

function describeFocus() {
  const panel = get("point");
  panel.replaceChildren();
  if (!focus) {
    panel.append(element("p", "Point at a place in the scene to see where its mass goes. A click keeps it, Escape lets it go."));
    return;
  }
  const [from, to] = [data.sides[focus.side], data.sides[1 - focus.side]];
  const mass = from.mass[focus.k];
  const verb = focus.side === 0 ? "sends" : "receives";
  panel.append(element("h3", nameOf(from, focus.k)));
  const total = `of ${data.names[focus.side]}, weight ${number(from.weight[focus.k])}, ${verb} ${number(mass)} (${percent(mass, from.weight[focus.k])} of it)`;
  panel.append(element("p", total));
  const list = element("ol");
  const masses = from.masses[focus.k];
  from.partners[focus.k].forEach((j, k) => {
    const item = element("li");
    const bar = element("span", undefined, "bar");
    bar.style.width = (100 * masses[k]) / masses[0] + "%";
    item.append(element("span", nameOf(to, j), "name"), element("span", number(masses[k]), "mass"), element("span", percent(masses[k], mass), "share"), bar);
    list.append(item);
  });
  panel.append(list);
  const rest = mass - masses.reduce((sum, part) => sum + part, 0);
  if (!masses.length) panel.append(element("p", "It is unmatched: its remaining mass is not listed."));
  else if (rest > 1e-3 * mass) panel.append(element("p", `The rest, ${percent(rest, mass)}, is spread over other points.`));
}

function setFocus(next) {
  const same = (focus && focus.side) === (next && next.side) && (focus && focus.k) === (next && next.k);
  if (same) return;
  focus = next;
  describeFocus();
  redrawMatches();
}

// Returns the projection of a position of the scene: pixels to the right and down in the window, and depth toward the
// viewer in units of the scene. Plotly would find lines and markers under the pointer first, hence our own projection.
function projection() {
  const { camera, aspectratio, xaxis, yaxis, zaxis } = scene.layout.scene;
  const axes = [xaxis, yaxis, zaxis].map(({ range: [low, high] }) => [(low + high) / 2, high - low]);
  const vector = ({ x, y, z }) => [x, y, z];
  const minus = (a, b) => a.map((v, c) => v - b[c]);
  const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
  const unit = (a) => a.map((v) => v / Math.hypot(...a));
  const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
  const center = vector(camera.center);
  const forward = unit(minus(vector(camera.eye), center));
  const right = unit(cross(vector(camera.up), forward));
  const up = cross(forward, right);
  const half = scene.clientHeight / 2;
  const ratio = vector(aspectratio);
  return (x, y, z) => {
    const at = minus([x, y, z].map((v, c) => ((v - axes[c][0]) * ratio[c]) / axes[c][1]), center);
    return [scene.clientWidth / 2 + half * dot(at, right), half - half * dot(at, up), dot(at, forward)];
  };
}

// Returns the drawn point nearest to a position in the window. On a surface, points behind count as farther.
function pointAt(clientX, clientY) {
  const frame = scene.getBoundingClientRect();
  const project = projection();
  let best = null;
  data.sides.forEach((side, which) => {
    const [x, y, z] = (side.surface || side).at;
    const [reach, behind] = side.surface ? [40, 6] : [14, 0.01];
    for (let k = 0; k < (side.surface ? x.length : side.drawn); k++) {
      const [px, py, depth] = project(x[k], y[k], z[k]);
      const away = Math.hypot(px - (clientX - frame.left), py - (clientY - frame.top)) / reach;
      const cost = away - behind * depth;
      if (away < 1 && (!best || cost < best.cost)) best = { cost, side: which, k: side.surface ? side.surface.nearest[k] : k };
    }
  });
  return best && { side: best.side, k: best.k };
}

function findPoint() {
  const wanted = get("find").value.trim();
  const which = +get("side").value;
  const side = data.sides[which];
  const drawn = side.index.slice(0, side.drawn);
  let k = side.labels ? side.labels.slice(0, side.drawn).indexOf(wanted) : -1;
  if (k < 0 && /^\d+$/.test(wanted)) k = drawn.indexOf(+wanted);
  pinned = k >= 0;
  setFocus(k >= 0 ? { side: which, k } : null);
  if (wanted && k < 0) get("point").replaceChildren(element("p", `${data.names[which]} has no drawn point “${wanted}”.`));
}

// -- rotation ---------------------------------------------------------------------------------------------

// Stacked spaces make one full rotation; spaces side by side swing, because one would hide the other. Then it stops.
const SECONDS = 24;
let turning = null; // {start, eye, paused}

function rotationAngle(seconds) {
  const phase = (2 * Math.PI * seconds) / SECONDS;
  return data.stacked ? phase : 0.6 * Math.sin(2 * phase);
}

function setRotation(on) {
  turning = on ? { seconds: 0, eye: { ...scene.layout.scene.camera.eye }, paused: false } : null;
  get("turn").setAttribute("aria-pressed", String(on));
  if (on) requestAnimationFrame((now) => animate(now, turning));
}

function animate(before, mine) {
  requestAnimationFrame((now) => {
    if (turning !== mine) return;
    if (!mine.paused) mine.seconds += Math.min(0.1, (now - before) / 1000);
    if (mine.seconds >= SECONDS) return setRotation(false);
    if (mine.paused) return animate(now, mine);
    const [c, s] = [Math.cos(rotationAngle(mine.seconds)), Math.sin(rotationAngle(mine.seconds))];
    const { x, y, z } = mine.eye;
    Plotly.relayout(scene, { "scene.camera.eye": { x: c * x - s * y, y: s * x + c * y, z } }).then(() => animate(now, mine));
  });
}

// -- light and dark ---------------------------------------------------------------------------------------

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  get("theme").textContent = name === "dark" ? "Light" : "Dark";
}

function changeTheme(name) {
  setTheme(name);
  redraw();
  drawCurve();
}

// -- start ------------------------------------------------------------------------------------------------

const prefers = (what) => window.matchMedia(`(prefers-${what})`);
const dark = prefers("color-scheme: dark");
setTheme(dark.matches ? "dark" : "light");
describeFocus();
updateLegend();
drawCurve();

data.names.forEach((name, k) => {
  get("side").append(new Option("in " + name, k));
  if (data.flat) get(k === 0 ? "above" : "below").textContent = name;
});
const slider = get("count");
slider.max = data.pairs.i.length;
slider.value = Math.min(1000, data.pairs.first); // each point with its largest match
slider.disabled = data.pairs.i.length === 0;

Plotly.newPlot(scene, traces(), sceneLayout(), CONFIG)
  .then(() => {
    drawMatches();
    let waiting = false; // a slider reports faster than lines are drawn
    slider.addEventListener("input", () => {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => {
        waiting = false;
        drawMatches();
      });
    });
    scene.addEventListener("pointermove", (event) => {
      const found = event.buttons || pinned ? null : pointAt(event.clientX, event.clientY);
      if (found) setFocus(found); // else the last one stays, to be read
    });
    scene.addEventListener("click", (event) => {
      const found = pointAt(event.clientX, event.clientY);
      pinned = found !== null;
      if (found) setFocus(found);
    });
    scene.addEventListener("pointerenter", () => turning && (turning.paused = true));
    scene.addEventListener("pointerleave", () => {
      if (turning) turning.paused = false;
      if (!pinned) setFocus(null);
    });
    scene.addEventListener("pointerdown", () => setRotation(false), { capture: true });
    document.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      pinned = false;
      setFocus(null);
    });
    window.addEventListener("resize", () => Plotly.relayout(scene, { "scene.aspectratio": fitAxes().ratio }));
    get("find").addEventListener("change", findPoint);
    get("side").addEventListener("change", findPoint);
    get("controls").addEventListener("submit", (event) => event.preventDefault());
    get("color").addEventListener("change", (event) => {
      coloring = event.target.value;
      updateLegend();
      redraw();
    });
    get("turn").addEventListener("click", () => setRotation(turning === null));
    get("theme").addEventListener("click", () => changeTheme(theme() === "dark" ? "light" : "dark"));
    dark.addEventListener("change", (event) => changeTheme(event.matches ? "dark" : "light"));
    if (!prefers("reduced-motion: reduce").matches) setRotation(true);
    document.documentElement.dataset.ready = "yes";
  })
  .catch((error) => {
    get("point").replaceChildren(element("p", `The scene cannot be drawn here: ${error.message || error}. It needs WebGL.`));
    throw error;
  });

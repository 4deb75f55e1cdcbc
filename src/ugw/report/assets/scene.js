"use strict";
// What a report draws: traces and layout of the scene, and the curve of convergence. page.js, after it, is what moves.
// The data are made by the Python package: numbers, and names that are only ever set as text.

const data = JSON.parse(document.getElementById("data").textContent);
const get = (id) => document.getElementById(id);
const scene = get("scene");
const curve = get("curve");

// Places of the traces in the scene, after the edges of both spaces.
const SPACES = [2, 3];
const LINES = 4;
const FOCUS_LINES = 5;
const FOCUS_ENDS = 6;

const APART = 0.2; // between the ends of matches whose mass is written beside them
const FONT = "system-ui, sans-serif";
const SHARE_SCALE = [[0, "#d1495b"], [0.5, "#edae49"], [1, "#2a9d8f"]]; // from left behind to matched in full

let focus = null; // {side, k}: the point whose matches are shown
let pinned = false; // by a click: it stays when the pointer leaves
let coloring = "carried";

// -- colors ----------------------------------------------------------------------------------------------

const theme = () => document.documentElement.dataset.theme;
const tone = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
const channels = (hex) => [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));

function mixed(color, other, share) {
  const [a, b] = [channels(color), channels(other)];
  return "rgb(" + a.map((v, k) => Math.round(share * v + (1 - share) * b[k])).join(",") + ")";
}

// The less of its weight a point sends or receives, the paler it is.
function carried(colors, shares) {
  const pale = tone("pale");
  return colors.map((color, k) => mixed(color, pale, Math.min(1, shares[k])));
}

// -- numbers as text --------------------------------------------------------------------------------------

const number = (value) => (value === 0 ? "0" : value >= 1e-5 && value < 1e5 ? String(+value.toPrecision(4)) : value.toExponential(2));
const percent = (part, whole) => {
  const share = whole > 0 ? (100 * part) / whole : 0;
  return (share >= 10 ? share.toFixed(0) : share >= 1 ? share.toFixed(1) : share >= 0.1 ? share.toFixed(2) : share > 0 ? "< 0.1" : "0") + " %";
};
const nameOf = (side, k) => (side.labels ? side.labels[k] : "point " + side.index[k]);

// -- traces -----------------------------------------------------------------------------------------------

const none = () => ({ x: [], y: [], z: [] });

// Segments between places of two sides, with a gap after each.
function segments(from, to, ends) {
  const line = none();
  for (const [i, j] of ends)
    ["x", "y", "z"].forEach((axis, c) => line[axis].push(from[c][i], to[c][j], null));
  return line;
}

const thrice = (values) => values.flatMap((value) => [value, value, value]); // one for each vertex of a segment

function lineTrace(extra) {
  return { type: "scatter3d", mode: "lines", showlegend: false, ...none(), ...extra };
}

// The edges of a graph, and the border of the plane that a flat space lies in.
function edgesTrace(side) {
  const line = segments(side.at, side.at, side.edges || []);
  if (data.flat) {
    const [[left, right], [front, back], [height]] = box(side);
    line.x.push(left, right, right, left, left);
    line.y.push(front, front, back, back, front);
    line.z.push(height, height, height, height, height);
  }
  return lineTrace({ ...line, line: { width: 1.5, color: tone("pale") } });
}

// The least and the largest coordinates of a space, with a margin around its plane, or above where its name stands.
function box(side) {
  const margins = data.flat ? [0.07, 0.07, 0] : [0.02, 0.02, 0.1];
  return side.at.map((values, c) => {
    const [low, high] = values.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
    return [low - margins[c], high + margins[c]];
  });
}

function spaceTrace(side) {
  if (side.surface) return surfaceTrace(side.surface);
  const first = (values) => values.slice(0, side.drawn); // the others are only ends of matches
  const size = Math.max(4, Math.min(11, 90 / Math.sqrt(side.drawn)));
  const [x, y, z] = side.at.map(first);
  const marker = {
    size: first(side.share).map((share) => size * Math.sqrt(Math.max(0.3, Math.min(2, share)))),
    line: { width: side.drawn > 150 ? 0 : 0.5, color: tone("card") },
    opacity: 1,
    ...pointColors(first(side.color), first(side.share)),
  };
  return { type: "scatter3d", mode: "markers", x, y, z, marker, showlegend: false };
}

function explain() {
  const source = data.names[0];
  get("legend").textContent =
    coloring === "carried"
      ? `Colors of ${source}, carried over by the plan. The smaller and paler a point, the less of its weight is matched.`
      : "From red, left behind, through yellow, half matched, to green, matched in full.";
}

function pointColors(colors, shares) {
  if (coloring === "carried") return { color: carried(colors, shares), showscale: false };
  return { color: shares, cmin: 0, cmax: 1, colorscale: SHARE_SCALE, showscale: false };
}

function surfaceTrace(surface) {
  const [x, y, z] = surface.at;
  const [i, j, k] = surface.faces;
  const colors =
    coloring === "carried"
      ? { vertexcolor: carried(surface.color, surface.share) }
      : { intensity: surface.share, cmin: 0, cmax: 1, colorscale: SHARE_SCALE };
  const lighting = { ambient: 0.72, diffuse: 0.45, specular: 0.12, roughness: 0.6, fresnel: 0.1 };
  return { type: "mesh3d", x, y, z, i, j, k, ...colors, lighting, flatshading: false, showscale: false, showlegend: false };
}

// The first matches in the color of where they come from, the lighter the fainter.
function matchesTrace(count) {
  const [x, y] = data.sides;
  const { i, j, mass, first } = data.pairs;
  const usual = mass[Math.floor(first / 2)]; // the first round is sorted: its median
  const back = tone("card");
  const chosen = [...Array(count).keys()];
  const colors = chosen.map((k) => mixed(x.color[i[k]], back, 0.1 + 0.9 * Math.min(1, Math.sqrt(mass[k] / usual))));
  const opacity = focus ? 0.08 : Math.max(0.15, Math.min(0.6, 8 / Math.sqrt(count)));
  return lineTrace({ ...segments(x.at, y.at, chosen.map((k) => [i[k], j[k]])), line: { width: 2, color: thrice(colors) }, opacity });
}

// The matches of the point in focus, the heavier the stronger.
function focusTraces() {
  const ends = { type: "scatter3d", mode: "markers", showlegend: false, ...none(), marker: { size: [] } };
  if (!focus) return [lineTrace({}), ends];
  const [from, to] = [data.sides[focus.side], data.sides[1 - focus.side]];
  const partners = from.partners[focus.k];
  const masses = from.masses[focus.k];
  const strength = masses.map((mass) => Math.sqrt(mass / masses[0]));
  const [accent, back] = [tone("accent"), tone("card")];
  const colors = strength.map((s) => mixed(accent, back, 0.25 + 0.75 * s));
  const lines = lineTrace({ ...segments(from.at, to.at, partners.map((j) => [focus.k, j])), line: { width: 5, color: thrice(colors) } });
  const [x, y, z] = [0, 1, 2].map((c) => [from.at[c][focus.k], ...partners.map((j) => to.at[c][j])]);
  const marker = {
    size: [14, ...strength.map((s) => 5 + 9 * s)],
    color: [accent, ...colors],
    line: { width: 2, color: tone("ink") },
    opacity: 1,
  };
  return [lines, { ...ends, x, y, z, marker }];
}

// -- words in the scene -----------------------------------------------------------------------------------

function word([x, y, z], text, extra) {
  return { x, y, z, text, showarrow: false, font: { family: FONT, size: 14, color: tone("ink") }, ...extra };
}

// The masses at the ends of the matches in focus, the largest first: none beside another, where it could not be read.
// They stand away from the lines.
function massWords() {
  if (!focus) return [];
  const [from, to] = [data.sides[focus.side], data.sides[1 - focus.side]];
  const away = focus.side === 0 ? 1 : -1;
  const place = data.stacked ? { yshift: -18 * away } : { xanchor: away > 0 ? "left" : "right", xshift: 12 * away };
  const taken = [];
  from.partners[focus.k].forEach((j, k) => {
    const at = to.at.map((axis) => axis[j]);
    if (taken.some((other) => Math.hypot(...at.map((v, c) => v - other.at[c])) < APART)) return;
    taken.push({ at, text: number(from.masses[focus.k][k]) });
  });
  return taken.map(({ at, text }) => word(at, text, { ...place, bgcolor: tone("card"), borderpad: 1, opacity: 0.9 }));
}

// Two planes have their names in the corners; solids have them above, cut to fit and kept from being read as markup.
function nameWords() {
  if (data.flat) return [];
  const short = (name) => (name.length > 28 ? name.slice(0, 27) + "…" : name).replaceAll("&", "&amp;").replaceAll("<", "&lt;");
  return data.sides.map((side, k) => {
    const [[left, right], [front, back], [, top]] = box(side);
    return word([(left + right) / 2, (front + back) / 2, top], short(data.names[k]), { font: { family: FONT, size: 15, color: tone("soft") } });
  });
}

const words = () => [...nameWords(), ...massWords()];

// -- the scene --------------------------------------------------------------------------------------------

// Flat spaces lie in two planes and are seen from above; solid ones stand side by side.
const EYE = data.flat ? { x: 0.6, y: -1.35, z: 0.95 } : { x: 0.3, y: -1.6, z: 0.45 };

// Without perspective, half the height of the window is 1. How long the axes may be for all to fit while they turn.
function fitted() {
  const ends = ["x", "y", "z"].map((_, c) => {
    const both = data.sides.map((side) => box(side)[c]);
    return [Math.min(both[0][0], both[1][0]), Math.max(both[0][1], both[1][1])];
  });
  const [hx, hy, hz] = ends.map(([low, high]) => (high - low) / 2);
  const lift = EYE.z / Math.hypot(EYE.x, EYE.y, EYE.z);
  const round = Math.hypot(hx, hy);
  const [wide, deep] = data.stacked ? [round, round] : [hx + 0.6 * hy, hy + 0.6 * hx];
  const high = hz * Math.sqrt(1 - lift * lift) + deep * lift;
  const unit = 0.95 * Math.min(scene.clientWidth / scene.clientHeight / wide, 1 / high);
  return { ends, ratio: { x: 2 * hx * unit, y: 2 * hy * unit, z: Math.max(1e-3, 2 * hz * unit) } };
}

function sceneLayout() {
  const { ends, ratio } = fitted();
  const [xaxis, yaxis, zaxis] = ends.map((range) => ({ visible: false, showspikes: false, range }));
  const camera = { eye: EYE, up: { x: 0, y: 0, z: 1 }, center: { x: 0, y: 0, z: 0 }, projection: { type: "orthographic" } };
  return {
    margin: { l: 0, r: 0, t: 0, b: 0 },
    paper_bgcolor: "rgba(0,0,0,0)",
    modebar: { bgcolor: "rgba(0,0,0,0)", color: tone("soft"), activecolor: tone("ink") },
    hovermode: false, // page.js sees to it
    scene: {
      aspectmode: "manual",
      aspectratio: ratio,
      dragmode: "turntable",
      xaxis,
      yaxis,
      zaxis,
      camera,
      annotations: words(),
      bgcolor: "rgba(0,0,0,0)",
    },
  };
}

function traces() {
  const count = +get("count").value;
  return [...data.sides.map(edgesTrace), ...data.sides.map(spaceTrace), matchesTrace(count), ...focusTraces()];
}

const CONFIG = { responsive: true, displaylogo: false, modeBarButtons: [["toImage", "resetCameraDefault3d"]] };

// -- convergence ------------------------------------------------------------------------------------------

function drawCurve() {
  const ink = tone("soft");
  const lines = data.curves.map((each, k) => ({
    x: each.step,
    y: each.size,
    name: each.name,
    mode: each.step.length < 40 ? "lines+markers" : "lines",
    marker: { size: 4 },
    line: { width: 2, color: tone("curve-" + (k + 1)), dash: k === 2 ? "dot" : "solid" },
    hovertemplate: "step %{x}: %{y:.2e}<extra></extra>",
  }));
  const axis = { color: ink, gridcolor: tone("rule"), zeroline: false, automargin: true, fixedrange: true };
  const layout = {
    margin: { l: 8, r: 8, t: 4, b: 4 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: ink, size: 12, family: FONT },
    xaxis: { ...axis, title: { text: "outer step" }, showgrid: false },
    yaxis: { ...axis, type: "log", exponentformat: "power", dtick: undefined, nticks: 6 },
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, font: { color: tone("ink") } },
  };
  return Plotly.react(curve, lines, layout, { responsive: true, displayModeBar: false });
}

"use strict";
// The drawing of a report: traces and layout of the scene, and the convergence curves. page.js adds the interaction.
// The data come from the Python package: numbers, and names that are only inserted as text, never as markup.

const data = JSON.parse(document.getElementById("data").textContent);
const get = (id) => document.getElementById(id);
const scene = get("scene");
const curve = get("curve");

// Indices of the traces of the scene; 0 and 1 are the edges of both spaces.
const SPACES = [2, 3];
const LINES = 4;
const FOCUS_LINES = 5;
const FOCUS_ENDS = 6;

const MIN_LABEL_DISTANCE = 0.2; // between two ends of matches that are labeled with their mass
const FONT = "system-ui, sans-serif";
const SHARE_SCALE = [[0, "#d1495b"], [0.5, "#edae49"], [1, "#2a9d8f"]]; // from unmatched to completely matched

let focus = null; // {side, k}: the point whose matches are shown
let pinned = false; // set by a click: the focus stays when the pointer leaves
let coloring = "transferred";

// -- colors ----------------------------------------------------------------------------------------------

const theme = () => document.documentElement.dataset.theme;
const tone = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
const channels = (hex) => [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));

function mixColors(color, other, share) {
  const [a, b] = [channels(color), channels(other)];
  return "rgb(" + a.map((v, k) => Math.round(share * v + (1 - share) * b[k])).join(",") + ")";
}

// Returns the colors, paler for points that send or receive a smaller share of their weight.
function fadeByShare(colors, shares) {
  const pale = tone("pale");
  return colors.map((color, k) => mixColors(color, pale, Math.min(1, shares[k])));
}

// -- numbers as text --------------------------------------------------------------------------------------

const number = (value) => (value === 0 ? "0" : value >= 1e-5 && value < 1e5 ? String(+value.toPrecision(4)) : value.toExponential(2));
const percent = (part, whole) => {
  const share = whole > 0 ? (100 * part) / whole : 0;
  return (share >= 10 ? share.toFixed(0) : share >= 1 ? share.toFixed(1) : share >= 0.1 ? share.toFixed(2) : share > 0 ? "< 0.1" : "0") + " %";
};
const nameOf = (side, k) => (side.labels ? side.labels[k] : "point " + side.index[k]);

// -- traces -----------------------------------------------------------------------------------------------

const emptyLine = () => ({ x: [], y: [], z: [] });

// Returns a line with the segments between points of two sides, with a gap after each.
function segments(from, to, ends) {
  const line = emptyLine();
  for (const [i, j] of ends)
    ["x", "y", "z"].forEach((axis, c) => line[axis].push(from[c][i], to[c][j], null));
  return line;
}

const repeatThrice = (values) => values.flatMap((value) => [value, value, value]); // one value for each vertex of a segment

function lineTrace(extra) {
  return { type: "scatter3d", mode: "lines", showlegend: false, ...emptyLine(), ...extra };
}

// Returns the trace of the edges of a graph, with the border of the plane of a flat space.
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

// Returns the smallest and largest coordinates of a space, with a margin around its plane, or above it for its name.
function box(side) {
  const margins = data.flat ? [0.07, 0.07, 0] : [0.02, 0.02, 0.1];
  return side.at.map((values, c) => {
    const [low, high] = values.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
    return [low - margins[c], high + margins[c]];
  });
}

function spaceTrace(side) {
  if (side.surface) return surfaceTrace(side.surface);
  const first = (values) => values.slice(0, side.drawn); // the other points are only ends of matches
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

function updateLegend() {
  const source = data.names[0];
  get("legend").textContent =
    coloring === "transferred"
      ? `Colors of ${source}, transferred by the plan. Size and opacity of a point show the matched share of its weight.`
      : "From red (unmatched) through yellow (half matched) to green (fully matched).";
}

function pointColors(colors, shares) {
  if (coloring === "transferred") return { color: fadeByShare(colors, shares), showscale: false };
  return { color: shares, cmin: 0, cmax: 1, colorscale: SHARE_SCALE, showscale: false };
}

function surfaceTrace(surface) {
  const [x, y, z] = surface.at;
  const [i, j, k] = surface.faces;
  const colors =
    coloring === "transferred"
      ? { vertexcolor: fadeByShare(surface.color, surface.share) }
      : { intensity: surface.share, cmin: 0, cmax: 1, colorscale: SHARE_SCALE };
  const lighting = { ambient: 0.72, diffuse: 0.45, specular: 0.12, roughness: 0.6, fresnel: 0.1 };
  return { type: "mesh3d", x, y, z, i, j, k, ...colors, lighting, flatshading: false, showscale: false, showlegend: false };
}

// Returns the trace of the first matches, in the colors of their source points, fainter for smaller mass.
function matchesTrace(count) {
  const [x, y] = data.sides;
  const { i, j, mass, first } = data.pairs;
  const medianMass = mass[Math.floor(first / 2)]; // the first matches are sorted by mass
  const back = tone("card");
  const chosen = [...Array(count).keys()];
  const colors = chosen.map((k) => mixColors(x.color[i[k]], back, 0.1 + 0.9 * Math.min(1, Math.sqrt(mass[k] / medianMass))));
  const opacity = focus ? 0.08 : Math.max(0.15, Math.min(0.6, 8 / Math.sqrt(count)));
  return lineTrace({ ...segments(x.at, y.at, chosen.map((k) => [i[k], j[k]])), line: { width: 2, color: repeatThrice(colors) }, opacity });
}

// Returns the traces of the matches of the point in focus, stronger for larger mass.
function focusTraces() {
  const ends = { type: "scatter3d", mode: "markers", showlegend: false, ...emptyLine(), marker: { size: [] } };
  if (!focus) return [lineTrace({}), ends];
  const [from, to] = [data.sides[focus.side], data.sides[1 - focus.side]];
  const partners = from.partners[focus.k];
  const masses = from.masses[focus.k];
  const strength = masses.map((mass) => Math.sqrt(mass / masses[0]));
  const [accent, back] = [tone("accent"), tone("card")];
  const colors = strength.map((s) => mixColors(accent, back, 0.25 + 0.75 * s));
  const lines = lineTrace({ ...segments(from.at, to.at, partners.map((j) => [focus.k, j])), line: { width: 5, color: repeatThrice(colors) } });
  const [x, y, z] = [0, 1, 2].map((c) => [from.at[c][focus.k], ...partners.map((j) => to.at[c][j])]);
  const marker = {
    size: [14, ...strength.map((s) => 5 + 9 * s)],
    color: [accent, ...colors],
    line: { width: 2, color: tone("ink") },
    opacity: 1,
  };
  return [lines, { ...ends, x, y, z, marker }];
}

// -- annotations of the scene -----------------------------------------------------------------------------

function annotation([x, y, z], text, extra) {
  return { x, y, z, text, showarrow: false, font: { family: FONT, size: 14, color: tone("ink") }, ...extra };
}

// Returns the masses at the ends of the matches in focus, the largest first, without overlaps and beside the lines.
function massAnnotations() {
  if (!focus) return [];
  const [from, to] = [data.sides[focus.side], data.sides[1 - focus.side]];
  const away = focus.side === 0 ? 1 : -1;
  const place = data.stacked ? { yshift: -18 * away } : { xanchor: away > 0 ? "left" : "right", xshift: 12 * away };
  const labels = [];
  from.partners[focus.k].forEach((j, k) => {
    const at = to.at.map((axis) => axis[j]);
    if (labels.some((label) => Math.hypot(...at.map((v, c) => v - label.at[c])) < MIN_LABEL_DISTANCE)) return;
    labels.push({ at, text: number(from.masses[focus.k][k]) });
  });
  return labels.map(({ at, text }) => annotation(at, text, { ...place, bgcolor: tone("card"), borderpad: 1, opacity: 0.9 }));
}

// Returns the names above solids, shortened and escaped; names of flat spaces are in the corners of the page.
function nameAnnotations() {
  if (data.flat) return [];
  const short = (name) => (name.length > 28 ? name.slice(0, 27) + "…" : name).replaceAll("&", "&amp;").replaceAll("<", "&lt;");
  return data.sides.map((side, k) => {
    const [[left, right], [front, back], [, top]] = box(side);
    return annotation([(left + right) / 2, (front + back) / 2, top], short(data.names[k]), { font: { family: FONT, size: 15, color: tone("soft") } });
  });
}

const sceneAnnotations = () => [...nameAnnotations(), ...massAnnotations()];

// -- the scene --------------------------------------------------------------------------------------------

// Flat spaces are in two planes and seen from above; solids are seen from the front.
const EYE = data.flat ? { x: 0.6, y: -1.35, z: 0.95 } : { x: 0.3, y: -1.6, z: 0.45 };

// Returns the ranges and lengths of the axes with which everything stays visible during rotation. Without perspective,
// half the height of the window has length 1.
function fitAxes() {
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
  const { ends, ratio } = fitAxes();
  const [xaxis, yaxis, zaxis] = ends.map((range) => ({ visible: false, showspikes: false, range }));
  const camera = { eye: EYE, up: { x: 0, y: 0, z: 1 }, center: { x: 0, y: 0, z: 0 }, projection: { type: "orthographic" } };
  return {
    margin: { l: 0, r: 0, t: 0, b: 0 },
    paper_bgcolor: "rgba(0,0,0,0)",
    modebar: { bgcolor: "rgba(0,0,0,0)", color: tone("soft"), activecolor: tone("ink") },
    hovermode: false, // page.js handles hovering
    scene: {
      aspectmode: "manual",
      aspectratio: ratio,
      dragmode: "turntable",
      xaxis,
      yaxis,
      zaxis,
      camera,
      annotations: sceneAnnotations(),
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

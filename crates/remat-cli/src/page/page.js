"use strict";
// The page reads one JSON list of documents, as the commands wrote them, and draws what it finds. Every document has
// a `schema`; a section is shown when its documents are there.

const documents = JSON.parse(document.getElementById("data").textContent);
const of = (schema) => documents.filter((d) => d.document.schema === schema);
const main = document.getElementById("main");
const tip = document.getElementById("tip");

// Okabe and Ito: distinguishable with any kind of colour vision, on white and on black.
const COLOURS = {
  parameter: "#0072B2", optimizer_state: "#56B4E9", buffer: "#8C8C8C", input: "#CC79A7",
  activation: "#E69F00", gradient: "#009E73", output: "#5B5B5B", workspace: "#D55E00",
};
const SERIES = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999999"];
const KINDS = Object.keys(COLOURS);

// --- small helpers -------------------------------------------------------------------------------------------------

function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children.filter((c) => c !== null && c !== undefined));
  return node;
}

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (n >= 1024 && unit < units.length - 1) { n /= 1024; unit += 1; }
  return `${unit === 0 ? n : n.toFixed(2)} ${units[unit]}`;
}

function seconds(t) {
  if (t === 0) return "0 s";
  const [value, unit] = Math.abs(t) < 1e-3 ? [t * 1e6, "µs"] : Math.abs(t) < 1 ? [t * 1e3, "ms"] : [t, "s"];
  return `${value.toFixed(Math.abs(value) < 10 ? 2 : Math.abs(value) < 100 ? 1 : 0)} ${unit}`;
}

// Missing values are shown as a dash.
const known = (show) => (value) => (value === null || value === undefined ? "–" : show(value));
const percent = (p) => `${p > 0 ? "+" : ""}${p.toFixed(1)} %`;
const count = (n) => n.toLocaleString("en-US");

function section(title, ...children) {
  const id = title.toLowerCase().replace(/[^a-z]+/g, "-");
  const made = element("section", { id }, element("h2", {}, title), ...children);
  main.append(made);
  return made;
}

function showTip(event, text) {
  tip.textContent = text;
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
  tip.style.top = `${Math.max(4, Math.min(event.clientY + 14, innerHeight - height - 8))}px`;
}
const hideTip = () => { tip.hidden = true; };

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const redraws = [];

// --- the answer ----------------------------------------------------------------------------------------------------

function card(value, what, kind = "") {
  return element("div", { class: "card" }, element("b", { class: kind }, value), element("span", {}, what));
}

function answers() {
  for (const { document: d, file } of of("remat.compare/1")) {
    const r = d.result;
    const cards = element("div", { class: "cards" });
    cards.append(card(d.fits ? "fits" : "does not fit", `${d.model} in ${bytes(d.budget_bytes)}`, d.fits ? "good" : "bad"));
    if (r) {
      cards.append(
        card(bytes(r.budgeted.measured_peak_bytes), `measured peak; ${bytes(r.keep_all.measured_peak_bytes)} without a budget`),
        card(`${r.peak_share_percent.toFixed(1)} %`, "of the peak without recomputation"),
        card(percent(r.overhead_percent), `time: ${seconds(r.budgeted.step_seconds.median)} ± ${seconds(r.budgeted.step_seconds.spread)} a step`),
        card(r.bits_equal ? "equal" : "different", "bits of loss, gradients and parameters", r.bits_equal ? "good" : "bad"),
      );
    }
    section("Measured", cards, element("p", { class: "note" }, `${file}: planner ${d.planner}, ${d.n_steps} steps of each program, alternately; the first is not timed. ${d.threads} threads, seed ${d.seed}.`));
  }
  for (const { document: d, file } of of("remat.plan/1")) {
    if (d.fits === undefined) continue;
    const gap = d.lower_bound > 0 ? 100 * (d.cost / d.lower_bound - 1) : null;
    const peak = d.arena_bytes ?? d.peak_bytes;
    const cards = element("div", { class: "cards" },
      card(d.fits ? "fits" : "does not fit", `${d.problem} in ${bytes(d.budget_bytes)}`, d.fits ? "good" : "bad"),
      card(bytes(peak), d.fits ? `predicted peak; ${bytes(d.keep_all_peak_bytes)} without a plan` : "lowest peak that was reached"),
      card(bytes(d.floor_bytes), `floor of every plan, set by ${d.floor_node}`),
    );
    if (d.fits) {
      cards.append(
        card(percent(d.overhead_percent), `time, predicted; ${count(d.n_recomputes)} nodes run again`),
        card(d.status === "optimal" ? "optimal" : gap === null ? "unknown" : `≤ ${gap.toFixed(2)} %`, "distance from the cheapest plan, proved"),
      );
    }
    section("Plan", cards, element("p", { class: "note" }, `${file}: planner ${d.planner}, ${seconds(d.planning_seconds)}, ${count(d.n_nodes)} nodes.`));
  }
}

// --- the timeline --------------------------------------------------------------------------------------------------

// Bytes by kind at every run: sums of the lives that contain it.
function stack(program) {
  const n = program.runs.length;
  const byKind = Object.fromEntries(KINDS.map((k) => [k, new Float64Array(n + 1)]));
  for (const life of program.lives) {
    byKind[life.kind][life.start] += life.bytes;
    byKind[life.kind][life.end + 1] -= life.bytes;
  }
  for (const kind of KINDS) for (let i = 1; i < n; i += 1) byKind[kind][i] += byKind[kind][i - 1];
  program.runs.forEach((run, i) => { byKind.workspace[i] = run.workspace_bytes; });
  const total = new Float64Array(n);
  for (const kind of KINDS) for (let i = 0; i < n; i += 1) total[i] += byKind[kind][i];
  let peak = 0;
  for (let i = 1; i < n; i += 1) if (total[i] > total[peak]) peak = i;
  return { byKind, total, peak, n };
}

function timelines() {
  for (const { document: d } of of("remat.timeline/1")) timeline(d);
}

function timeline(d) {
  const programs = d.programs.map((program) => ({ ...program, ...stack(program) }));
  const top = Math.max(...programs.map((p) => Math.max(p.total[p.peak] ?? 0, p.budget_bytes ?? 0)));
  let chosen = programs.length - 1;
  let at = programs[chosen].peak;

  const canvas = element("canvas", { tabindex: 0, role: "img", "aria-label": "memory over the step; arrow keys move, p goes to the peak" });
  const strip = element("canvas", { "aria-hidden": "true" });
  const panel = element("div", { class: "panel", "aria-live": "polite" });
  const tabs = element("div", { class: "row" });
  programs.forEach((program, i) => {
    const button = element("button", { type: "button", onclick: () => { chosen = i; at = programs[i].peak; draw(); } }, program.name);
    tabs.append(button);
  });
  tabs.append(element("button", { type: "button", onclick: () => { at = programs[chosen].peak; draw(); } }, "go to the peak"));
  const legend = element("div", { class: "legend" });
  for (const kind of KINDS) legend.append(element("span", {}, element("i", { style: `background:${COLOURS[kind]}` }), kind.replace("_", " ")));
  legend.append(element("span", {}, element("i", { style: "background:var(--mark)" }), "recompute (strip below)"));

  const LEFT = 74, RIGHT = 12, TOP = 12, BOTTOM = 26, HEIGHT = 340;

  function draw() {
    [...tabs.children].forEach((b, i) => { if (i < programs.length) b.setAttribute("aria-pressed", String(i === chosen)); });
    const p = programs[chosen];
    const width = canvas.parentElement.clientWidth - 12;
    const context = prepare(canvas, width, HEIGHT);
    const inner = width - LEFT - RIGHT;
    const x = (i) => LEFT + (p.n > 1 ? (i / p.n) * inner : 0);
    const y = (b) => TOP + (1 - b / (top * 1.06)) * (HEIGHT - TOP - BOTTOM);
    axis(context, top, y, LEFT, width - RIGHT);
    // Other programs as an outline, for comparison.
    programs.forEach((other, k) => { if (k !== chosen) outline(context, other, (i) => LEFT + (i / other.n) * inner, y); });
    const base = new Float64Array(p.n);
    const step = Math.max(1, Math.floor(p.n / inner));
    for (const kind of KINDS) {
      const values = p.byKind[kind];
      context.beginPath();
      const up = [], down = [];
      for (let i = 0; i < p.n; i += step) {
        // A pixel shows the rank with the most memory, so that no peak is lost.
        let best = i;
        for (let j = i; j < Math.min(i + step, p.n); j += 1) if (p.total[j] > p.total[best]) best = j;
        up.push([x(i), y(base[best] + values[best])], [x(Math.min(i + step, p.n)), y(base[best] + values[best])]);
        down.push([x(i), y(base[best])], [x(Math.min(i + step, p.n)), y(base[best])]);
      }
      [...up, ...down.reverse()].forEach(([px, py], i) => (i ? context.lineTo(px, py) : context.moveTo(px, py)));
      context.fillStyle = COLOURS[kind];
      context.fill();
      for (let i = 0; i < p.n; i += 1) base[i] += values[i];
    }
    phases(context, p, x);
    if (p.budget_bytes) {
      line(context, LEFT, y(p.budget_bytes), width - RIGHT, y(p.budget_bytes), colour("--mark"), [6, 4]);
      label(context, `budget ${bytes(p.budget_bytes)}`, width - RIGHT - 4, y(p.budget_bytes) - 5, "right", colour("--mark"));
    }
    if (at < p.n) line(context, x(at + 0.5), TOP, x(at + 0.5), HEIGHT - BOTTOM, colour("--cursor"), [2, 2]);
    drawStrip(p, width, x);
    describe(p);
  }

  function drawStrip(p, width, x) {
    const context = prepare(strip, width, 26);
    const phase = { forward: "#56B4E9", backward: "#009E73", optimizer: "#999999" };
    p.runs.forEach((run, i) => {
      context.fillStyle = run.recompute ? colour("--mark") : phase[run.phase];
      context.fillRect(x(i), run.recompute ? 0 : 8, Math.max(x(i + 1) - x(i), 0.6), run.recompute ? 26 : 14);
    });
  }

  function phases(context, p, x) {
    let last = -100;
    for (const phase of ["forward", "backward", "optimizer"]) {
      const i = p.runs.findIndex((r) => r.phase === phase && !r.recompute);
      if (i < 0) continue;
      if (i > 0) line(context, x(i), TOP, x(i), HEIGHT - BOTTOM, colour("--faint"), [1, 3]);
      const px = Math.max(x(i) + 3, last + 8);
      label(context, phase === "optimizer" ? "first update" : phase, px, HEIGHT - 9, "left", colour("--faint"));
      last = px + context.measureText(phase === "optimizer" ? "first update" : phase).width;
    }
  }

  function describe(p) {
    const run = p.runs[at];
    panel.replaceChildren();
    if (!run) return;
    const live = p.lives.filter((l) => l.start <= at && at <= l.end && l.bytes > 0).sort((a, b) => b.bytes - a.bytes);
    panel.append(
      element("b", {}, `${bytes(p.total[at])}${at === p.peak ? ", the peak" : ""}`),
      element("div", {}, `run ${count(at + 1)} of ${count(p.n)}: ${run.node}${run.recompute ? " (recompute)" : ""}`),
      element("small", {}, `${run.phase}, ${seconds(run.seconds)}, ${count(live.length)} buffers live, workspace ${bytes(run.workspace_bytes)}`),
    );
    const list = element("ol", { tabindex: 0, "aria-label": "live values, the largest first" });
    for (const l of live.slice(0, 60)) {
      list.append(element("li", {}, element("span", {}, bytes(l.bytes)),
        element("span", {}, l.value, element("br"), element("small", {}, `${l.kind.replace("_", " ")}${l.module ? `, ${l.module}` : ""}${l.recompute ? ", recomputed" : ""}`))));
    }
    panel.append(list);
    if (live.length > 60) panel.append(element("small", {}, `and ${count(live.length - 60)} smaller ones`));
  }

  const rankAt = (event) => {
    const box = canvas.getBoundingClientRect();
    const p = programs[chosen];
    const share = (event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT);
    return Math.max(0, Math.min(p.n - 1, Math.floor(share * p.n)));
  };
  const hover = (event) => {
    at = rankAt(event);
    const p = programs[chosen];
    const run = p.runs[at];
    if (run) showTip(event, `${run.node}${run.recompute ? " (recompute)" : ""}: ${bytes(p.total[at])}`);
    draw();
  };
  for (const target of [canvas, strip]) {
    target.addEventListener("pointermove", hover);
    target.addEventListener("pointerleave", hideTip);
  }
  canvas.addEventListener("keydown", (event) => {
    const p = programs[chosen];
    const far = event.shiftKey ? Math.ceil(p.n / 50) : 1;
    const moves = { ArrowLeft: at - far, ArrowRight: at + far, Home: 0, End: p.n - 1, p: p.peak };
    if (!(event.key in moves)) return;
    at = Math.max(0, Math.min(p.n - 1, moves[event.key]));
    event.preventDefault();
    draw();
  });

  section(`Memory over the step: ${d.model}`, tabs,
    element("div", { class: "split" },
      element("div", {}, element("div", { class: "chart" }, canvas, strip), legend),
      panel),
    element("p", { class: "note" }, "Bytes in use while each node runs; the outline is the other program. Hover or use the arrow keys (with shift: larger steps, Home, End, p for the peak); the list shows what is live. Below: the schedule, recomputations raised and in orange."));
  redraws.push(draw);
}

function prepare(canvas, width, height) {
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = "12px system-ui, sans-serif";
  return context;
}

function line(context, x0, y0, x1, y1, stroke, dash = []) {
  context.save();
  context.setLineDash(dash);
  context.strokeStyle = stroke;
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
  context.restore();
}

function label(context, text, x, y, align, fill) {
  context.textAlign = align;
  context.fillStyle = fill;
  context.fillText(text, x, y);
}

// A round step that gives four to eight marks, in powers of two of bytes or of ten of anything else.
function roundStep(top, binary) {
  const base = binary ? 2 : 10;
  let step = base ** Math.floor(Math.log(top / 5) / Math.log(base));
  if (!binary) for (const factor of [5, 2]) if (top / (step * factor) >= 4) { step *= factor; break; }
  return step > 0 && Number.isFinite(step) ? step : 1;
}

function axis(context, top, y, left, right) {
  const step = roundStep(top || 1, true);
  for (let b = 0; b <= top * 1.05; b += step) {
    line(context, left, y(b), right, y(b), colour("--line"));
    label(context, bytes(b), left - 6, y(b) + 4, "right", colour("--faint"));
  }
}

function outline(context, p, x, y) {
  context.save();
  context.strokeStyle = colour("--faint");
  context.beginPath();
  const step = Math.max(1, Math.floor(p.n / 800));
  for (let i = 0; i < p.n; i += step) {
    let most = 0;
    for (let j = i; j < Math.min(i + step, p.n); j += 1) most = Math.max(most, p.total[j]);
    if (i) context.lineTo(x(i), y(most)); else context.moveTo(x(i), y(most));
  }
  context.stroke();
  context.restore();
}

// --- tables --------------------------------------------------------------------------------------------------------

// `columns`: [title, row => value, value => text, is it a number]. Rows beyond the first 200 appear on demand.
function table(rows, columns, searchable) {
  const PAGE = 200;
  let sortBy = -1, ascending = true, wanted = "", shown = PAGE;
  const body = element("tbody");
  const status = element("span", { class: "note" });
  const more = element("button", { type: "button", onclick: () => { shown += 5 * PAGE; fill(); } }, "show more");
  const heads = columns.map(([title, , , isNumber], i) => element("th", { class: isNumber ? "number" : null, scope: "col" },
    element("button", { type: "button", onclick: () => { ascending = sortBy === i ? !ascending : !isNumber; sortBy = i; fill(); } }, title)));
  function fill() {
    const text = wanted.toLowerCase();
    let found = text ? rows.filter((row) => columns.some(([, get, show]) => String(show(get(row))).toLowerCase().includes(text))) : [...rows];
    if (sortBy >= 0) {
      const get = columns[sortBy][1];
      const order = (a, b) => (typeof a === "number" ? a - b : String(a).localeCompare(String(b)));
      const isMissing = (row) => get(row) === null || get(row) === undefined;
      // Missing values stand at the end, whichever way the others are sorted.
      found.sort((a, b) => isMissing(a) - isMissing(b) || (isMissing(a) ? 0 : (ascending ? 1 : -1) * order(get(a), get(b))));
    }
    heads.forEach((head, i) => head.setAttribute("aria-sort", i !== sortBy ? "none" : ascending ? "ascending" : "descending"));
    body.replaceChildren(...found.slice(0, shown).map((row) => element("tr", {},
      ...columns.map(([, get, show, isNumber], i) => element("td", { class: isNumber ? "number" : i === 0 ? "wide" : null }, String(show(get(row))))))));
    status.textContent = `${count(found.length)} of ${count(rows.length)}`;
    more.hidden = found.length <= shown;
  }
  const search = element("input", { type: "search", placeholder: "filter", "aria-label": "filter rows", oninput: (event) => { wanted = event.target.value; fill(); } });
  fill();
  return [searchable ? element("div", { class: "row" }, search, status) : null,
    element("div", { class: "scroll" }, element("table", {}, element("thead", {}, element("tr", {}, ...heads)), body)), more].filter(Boolean);
}

const same = (v) => v;

function decisions() {
  for (const { document: d } of of("remat.decisions/1")) {
    const dropped = d.rows.filter((r) => r.decision === "RECOMPUTE");
    const sum = (rows) => rows.reduce((t, r) => t + r.median_mem_size_bytes, 0);
    section("Decisions",
      element("p", {}, `${count(dropped.length)} of ${count(d.rows.length)} activations are recomputed; they hold ${bytes(sum(dropped))} of ${bytes(sum(d.rows))}.`),
      ...table(d.rows, [
        ["activation", (r) => r.activation_name, same, false],
        ["decision", (r) => r.decision, same, false],
        ["size", (r) => r.median_mem_size_bytes, bytes, true],
        ["to recompute", (r) => r.recomp_time_s, seconds, true],
        ["made at rank", (r) => r.creation_rank, count, true],
        ["needed at rank", (r) => r.first_bw_use_rank, count, true],
      ], true));
  }
}

function profiles() {
  for (const { document: d, file } of of("remat.profile/2")) {
    const peak = d.peak ? Object.entries(d.peak.by_kind_bytes).sort((a, b) => b[1] - a[1]) : [];
    section(`Profile: ${d.model}`,
      element("div", { class: "cards" },
        card(bytes(d.keep_all_peak_bytes), "peak without recomputation"),
        card(seconds(d.step_seconds), `a step, sum of ${count(d.n_nodes)} nodes (${d.cost})`),
        card(count(d.n_parameters), `parameters, ${d.optimizer}`),
        ...peak.slice(0, 3).map(([kind, b]) => card(bytes(b), `${kind.replace("_", " ")} at the peak`))),
      element("h3", {}, "By module"),
      ...table(d.modules, [
        ["module", (r) => r.module, same, false],
        ["nodes", (r) => r.n_nodes, count, true],
        ["time", (r) => r.seconds, seconds, true],
        ["parameters", (r) => r.parameter_bytes, bytes, true],
        ["at the peak", (r) => r.bytes_at_peak, bytes, true],
      ], false),
      element("h3", {}, "By op"),
      ...table(d.ops, [
        ["op", (r) => r.op, same, false],
        ["nodes", (r) => r.n_nodes, count, true],
        ["time", (r) => r.seconds, seconds, true],
        ["outputs", (r) => r.output_bytes, bytes, true],
      ], false),
      element("p", { class: "note" }, `${file}: ${d.threads} threads; ${d.cost === "measured" ? "each node run alone, median of repeated runs after a warm-up" : "calculated from the machine's speeds"}.`));
  }
}

// --- charts of sweeps and frontiers ---------------------------------------------------------------------------------

function svg(name, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

// Lines over one pair of axes: `lines` are {name, points: [[x, y, text]], dashed}.
function lineChart(lines, xName, yName, xText, yText) {
  const W = 860, H = 340, L = 78, R = 16, T = 14, B = 44;
  const all = lines.flatMap((l) => l.points);
  const [x0, x1] = [Math.min(...all.map((p) => p[0])), Math.max(...all.map((p) => p[0]))];
  const y1 = Math.max(...all.map((p) => p[1]), 1e-9) * 1.06;
  const x = (v) => L + ((v - x0) / (x1 - x0 || 1)) * (W - L - R);
  const y = (v) => T + (1 - v / y1) * (H - T - B);
  const chart = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `${yName} over ${xName}` });
  const yStep = roundStep(y1, false);
  for (let v = 0; v <= y1; v += yStep) {
    chart.append(svg("line", { class: "axis", x1: L, x2: W - R, y1: y(v), y2: y(v) }),
      svg("text", { x: L - 8, y: y(v) + 4, "text-anchor": "end" }, yText(v)));
  }
  for (let i = 0; i <= 4; i += 1) {
    const v = x0 + ((x1 - x0) * i) / 4;
    chart.append(svg("text", { x: x(v), y: H - B + 18, "text-anchor": i === 0 ? "start" : i === 4 ? "end" : "middle" }, xText(v)));
  }
  chart.append(svg("text", { x: (L + W - R) / 2, y: H - 6, "text-anchor": "middle" }, xName),
    svg("text", { x: 14, y: (T + H - B) / 2, transform: `rotate(-90 14 ${(T + H - B) / 2})`, "text-anchor": "middle" }, yName));
  lines.forEach((l, i) => {
    const stroke = SERIES[i % SERIES.length];
    chart.append(svg("polyline", { points: l.points.map((p) => `${x(p[0])},${y(p[1])}`).join(" "), fill: "none", stroke, "stroke-width": 2, ...(l.dashed ? { "stroke-dasharray": "6 4" } : {}) }));
    // Dots can be pointed at; on a long line they would only hide it.
    const every = Math.ceil(l.points.length / 100);
    for (const p of l.points.filter((_, k) => k % every === 0)) {
      chart.append(svg("circle", { cx: x(p[0]), cy: y(p[1]), r: 3.5, fill: stroke, onpointermove: (e) => showTip(e, `${l.name}: ${p[2]}`), onpointerleave: hideTip }));
    }
  });
  return [element("div", { class: "chart" }, chart), keys(lines.map((l) => l.name))];
}

function keys(names) {
  return element("div", { class: "legend" }, ...names.map((name, i) =>
    element("span", {}, element("i", { style: `background:${SERIES[i % SERIES.length]}` }), name)));
}

function barChart(groups, series, yName, yText, binary) {
  const W = 860, H = 340, L = 86, R = 10, T = 22, B = 40;
  const y1 = Math.max(...groups.flatMap((g) => g.bars.map((b) => (b ? b.value : 0))), 1e-9) * 1.1;
  const y = (v) => T + (1 - v / y1) * (H - T - B);
  const chart = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": yName });
  const step = roundStep(y1, binary);
  for (let v = 0; v <= y1; v += step) {
    chart.append(svg("line", { class: "axis", x1: L, x2: W - R, y1: y(v), y2: y(v) }),
      svg("text", { x: L - 8, y: y(v) + 4, "text-anchor": "end" }, yText(v)));
  }
  const place = (W - L - R) / groups.length;
  groups.forEach((group, g) => {
    const width = (0.84 * place) / series.length;
    group.bars.forEach((bar, i) => {
      if (!bar) return;
      const left = L + place * (g + 0.08) + width * i;
      chart.append(svg("rect", { x: left, y: y(bar.value), width: Math.max(width - 2, 1), height: y(0) - y(bar.value), fill: SERIES[i % SERIES.length], onpointermove: (e) => showTip(e, bar.text), onpointerleave: hideTip }));
      if (bar.label && width > 26) chart.append(svg("text", { x: left + width / 2 - 1, y: y(bar.value) - 4, "text-anchor": "middle", style: "font-size:10px" }, bar.label));
    });
    chart.append(svg("text", { x: L + place * (g + 0.5), y: H - B + 18, "text-anchor": "middle" }, group.name));
  });
  chart.append(svg("text", { x: 14, y: (T + H - B) / 2, transform: `rotate(-90 14 ${(T + H - B) / 2})`, "text-anchor": "middle" }, yName));
  return [element("div", { class: "chart" }, chart), keys(series)];
}

function frontiers() {
  for (const { document: d, file } of of("remat.frontier/1")) {
    const points = d.points.filter((p) => p.cost !== null && p.cost !== undefined);
    if (points.length === 0) continue;
    const base = d.keep_all_cost;
    const over = (cost) => 100 * (cost / base - 1);
    const plan = { name: `${d.planner}`, points: points.map((p) => [p.peak_bytes, over(p.cost), `${bytes(p.peak_bytes)}, ${percent(over(p.cost))}`]) };
    const bound = { name: "proved lower bound", dashed: true, points: points.filter((p) => p.lower_bound).map((p) => [p.peak_bytes, Math.max(0, over(p.lower_bound)), `${bytes(p.peak_bytes)}, at least ${percent(over(p.lower_bound))}`]) };
    section("Frontier: memory against time", ...lineChart([plan, bound], "peak memory", "extra time (%)", bytes, (v) => `${Number(v.toPrecision(3))} %`),
      element("p", { class: "note" }, `${file}: ${count(points.length)} plans, each checked; no plan is below ${bytes(d.floor_bytes)}.`));
  }
}

function losses() {
  const logs = of("remat.loss_log/1");
  if (logs.length === 0) return;
  const lines = logs.map(({ document: d }, i) => ({
    name: d.name, dashed: i > 0, points: d.points.map(([step, loss]) => [step, loss, `step ${step}, ${loss}`]),
  }));
  const first = new Map(logs[0].document.points);
  const differs = logs.slice(1).some(({ document: d }) => d.points.some(([step, loss]) => first.has(step) && first.get(step) !== loss));
  const verdict = logs.length > 1 ? element("p", { class: differs ? "bad" : "good" }, differs ? "The logs differ." : "All logs are equal in every step they share.") : null;
  section("Loss", ...[verdict].filter(Boolean), ...lineChart(lines, "step", "loss", (v) => String(Math.round(v)), (v) => String(Number(v.toPrecision(3)))));
}

function sweeps() {
  for (const { document: d, file } of of("remat.sweep/1")) {
    const cases = [...new Set(d.rows.map((r) => r.case))];
    const series = [...new Set(d.rows.map((r) => r.program))];
    const row = (c, s) => d.rows.find((r) => r.case === c && r.program === s);
    const groups = (value, text, share) => cases.map((c) => ({
      name: c,
      bars: series.map((s) => {
        const r = row(c, s);
        if (!r || value(r) === null || value(r) === undefined) return null;
        return { value: value(r), text: `${c}, ${s}: ${text(value(r))}`, label: share(r) === null ? "" : percent(share(r)) };
      }),
    }));
    section(`Sweep: ${d.model}`,
      element("h3", {}, "Peak memory"),
      ...barChart(groups((r) => r.measured_peak_bytes ?? r.predicted_peak_bytes, bytes, (r) => r.peak_change_percent), series, "peak memory", bytes, true),
      element("h3", {}, "Time of a step"),
      ...barChart(groups((r) => r.step_seconds?.median, seconds, (r) => r.overhead_percent), series, "time of a step", seconds, false),
      ...table(d.rows, [
        ["case", (r) => r.case, same, false],
        ["program", (r) => r.program, same, false],
        ["peak", (r) => r.measured_peak_bytes ?? r.predicted_peak_bytes, known(bytes), true],
        ["change", (r) => r.peak_change_percent, known(percent), true],
        ["time", (r) => r.step_seconds?.median, known(seconds), true],
        ["spread", (r) => r.step_seconds?.spread, known(seconds), true],
        ["overhead", (r) => r.overhead_percent, known(percent), true],
        ["planned", (r) => r.planned_overhead_percent, known(percent), true],
        ["gap", (r) => r.gap_percent, known((p) => `≤ ${p.toFixed(2)} %`), true],
        ["note", (r) => r.note ?? "", same, false],
      ], true),
      element("p", { class: "note" }, `${file}: whole training steps, programs alternately, ${d.n_rounds} rounds of ${d.n_steps} timed steps after ${d.n_warm_up ?? 1} to warm up; medians, spread is half the distance of the quartiles. ${d.threads} threads.`));
  }
}

function environment() {
  const show = (key, value) => (key.endsWith("_bytes") ? bytes(value) : value);
  const facts = ({ document: d }) => Object.entries(d).filter(([k, v]) => k !== "schema" && v !== null);
  const rows = of("remat.environment/1").flatMap(facts).map(([k, v]) => [k.replace(/_bytes$/, ""), show(k, v)]);
  const files = documents.map((d) => `${d.file} (${d.document.schema})`).join(", ");
  const children = [];
  if (rows.length) children.push(...table(rows, [["what", (r) => r[0].replaceAll("_", " "), same, false], ["value", (r) => r[1], same, false]], false));
  section("How it was measured", ...children, element("p", { class: "note" }, `Made from: ${files}. Peaks are sizes of the arena in which the whole step runs, to the byte: parameters, gradients, optimizer state, activations, temporaries and workspaces.`));
}

// --- theme, start ---------------------------------------------------------------------------------------------------

const root = document.documentElement;
root.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
document.getElementById("theme").addEventListener("click", () => {
  root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
  redraws.forEach((draw) => draw());
});

const names = [...new Set(documents.map((d) => d.document.model ?? d.document.problem).filter(Boolean))];
if (names.length) {
  document.getElementById("title").textContent = `remat: ${names.join(", ")}`;
  document.title = `remat: ${names[0]}`;
}
answers();
timelines();
decisions();
sweeps();
frontiers();
losses();
profiles();
environment();
const redraw = () => redraws.forEach((draw) => draw());
redraw();
addEventListener("resize", redraw);
document.body.dataset.ready = "true";

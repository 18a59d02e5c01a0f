// Memory over the step: what is live while each node runs, on a canvas, with a cursor.

// Bytes by kind at every run: sums of the lives that contain it.
function stack(program) {
  const n = program.runs.length;
  const byKind = new Map(KINDS.map((k) => [k, new Float64Array(n + 1)]));
  for (const life of program.lives) {
    const bytesOf = byKind.get(life.kind) ?? byKind.get("output");
    bytesOf[life.start] += life.bytes;
    bytesOf[life.end + 1] -= life.bytes;
  }
  for (const bytesOf of byKind.values()) for (let i = 1; i < n; i += 1) bytesOf[i] += bytesOf[i - 1];
  program.runs.forEach((run, i) => { byKind.get("workspace")[i] = run.workspace_bytes; });
  const total = new Float64Array(n);
  for (const bytesOf of byKind.values()) for (let i = 0; i < n; i += 1) total[i] += bytesOf[i];
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
    tabs.append(element("button", { type: "button", onclick: () => { chosen = i; at = programs[i].peak; draw(); } }, program.name));
  });
  tabs.append(element("button", { type: "button", onclick: () => { at = programs[chosen].peak; draw(); } }, "go to the peak"));
  const keys = legend([
    ...KINDS.map((kind) => [kind.replace("_", " "), COLOURS.get(kind)]),
    ["recomputed (strip below the chart)", RECOMPUTE],
    ...(programs.length > 1 ? [["the other program", "var(--faint)", "line"]] : []),
    ...(programs.some((p) => p.budget_bytes) ? [["budget", "var(--text)", "line dashed"]] : []),
  ]);

  const LEFT = 72, RIGHT = 10, TOP = 30, BOTTOM = 26, HEIGHT = 350;

  function draw() {
    [...tabs.children].forEach((b, i) => { if (i < programs.length) b.setAttribute("aria-pressed", String(i === chosen)); });
    const p = programs[chosen];
    const width = canvas.parentElement.clientWidth - 14;
    const context = prepare(canvas, width, HEIGHT);
    const inner = width - LEFT - RIGHT;
    const x = (i) => LEFT + (p.n > 1 ? (i / p.n) * inner : 0);
    const y = (b) => TOP + (1 - b / (top * 1.06 || 1)) * (HEIGHT - TOP - BOTTOM);
    label(context, "memory in use", 4, 14, "left", colour("--text"));
    for (const b of marks(0, top * 1.05, true)) {
      line(context, LEFT, y(b), width - RIGHT, y(b), colour("--line"));
      label(context, roundBytes(b), LEFT - 6, y(b) + 4, "right", colour("--faint"));
    }
    const base = new Float64Array(p.n);
    const step = Math.max(1, Math.floor(p.n / inner));
    for (const [kind, values] of p.byKind) {
      context.beginPath();
      const up = [], down = [];
      for (let i = 0; i < p.n; i += step) {
        // A pixel shows the rank with the most memory, so that no peak is lost.
        let best = i;
        for (let j = i; j < Math.min(i + step, p.n); j += 1) if (p.total[j] > p.total[best]) best = j;
        const [left, right] = [x(i), x(Math.min(i + step, p.n))];
        up.push([left, y(base[best] + values[best])], [right, y(base[best] + values[best])]);
        down.push([left, y(base[best])], [right, y(base[best])]);
      }
      [...up, ...down.reverse()].forEach(([px, py], i) => (i ? context.lineTo(px, py) : context.moveTo(px, py)));
      context.fillStyle = COLOURS.get(kind);
      context.fill();
      for (let i = 0; i < p.n; i += 1) base[i] += values[i];
    }
    programs.forEach((other, k) => { if (k !== chosen) outline(context, other, (i) => LEFT + (i / other.n) * inner, y); });
    phases(context, p, x, width - RIGHT);
    if (p.budget_bytes) {
      const height = y(p.budget_bytes);
      line(context, LEFT, height, width - RIGHT, height, colour("--text"), [6, 4]);
      // In a box of its own, which no line crosses; above the plot there is room at every width.
      tag(context, `budget ${bytes(p.budget_bytes)}`, width - RIGHT, 14, height);
    }
    if (at < p.n) line(context, x(at + 0.5), TOP, x(at + 0.5), HEIGHT - BOTTOM, colour("--cursor"), [2, 2]);
    drawStrip(p, width, x);
    describe(p);
  }

  function drawStrip(p, width, x) {
    const context = prepare(strip, width, 26);
    const phase = { forward: colour("--forward"), backward: colour("--backward"), optimizer: colour("--update") };
    p.runs.forEach((run, i) => {
      context.fillStyle = run.recompute ? RECOMPUTE : phase[run.phase] ?? colour("--faint");
      context.fillRect(x(i), run.recompute ? 0 : 8, Math.max(x(i + 1) - x(i), 0.6), run.recompute ? 26 : 14);
    });
  }

  function phases(context, p, x, right) {
    const names = { forward: "forward", backward: "backward", optimizer: "first update" };
    const starts = Object.keys(names).map((phase) => [p.runs.findIndex((r) => r.phase === phase && !r.recompute), names[phase]])
      .filter(([i]) => i >= 0).sort((a, b) => a[0] - b[0]);
    let last = -100;
    for (const [i, name] of starts) {
      if (i > 0) line(context, x(i), TOP, x(i), HEIGHT - BOTTOM, colour("--faint"), [1, 3]);
      const width = context.measureText(name).width;
      const px = Math.max(Math.min(x(i) + 3, right - width), last + 10);
      if (px + width <= right + 8) label(context, name, px, HEIGHT - 9, "left", colour("--faint"));
      last = px + width;
    }
  }

  function describe(p) {
    const run = p.runs[at];
    panel.replaceChildren();
    if (!run) return;
    const live = p.lives.filter((l) => l.start <= at && at <= l.end && l.bytes > 0).sort((a, b) => b.bytes - a.bytes);
    panel.append(
      element("b", {}, `${bytes(p.total[at])}${at === p.peak ? ", the peak" : ""}`),
      element("div", {}, `run ${count(at + 1)} of ${count(p.n)}: ${run.node}${run.recompute ? " (recomputed)" : ""}`),
      element("small", {}, `${run.phase}, ${seconds(run.seconds)}, ${count(live.length)} buffers live, workspace ${bytes(run.workspace_bytes)}`),
    );
    const list = element("ol", { tabindex: 0, "aria-label": "live values, the largest first" });
    for (const l of live.slice(0, 60)) {
      const what = `${l.kind.replace("_", " ")}${l.module ? `, ${l.module}` : ""}${l.recompute ? ", recomputed" : ""}`;
      list.append(element("li", {}, element("span", {}, bytes(l.bytes)),
        element("span", {}, element("i", { class: "dot", style: `--key:${COLOURS.get(l.kind) ?? "var(--faint)"}` }), l.value, element("br"), element("small", {}, what))));
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
    if (run) showTip(event, `${run.node}${run.recompute ? " (recomputed)" : ""}: ${bytes(p.total[at])}`);
    draw();
  };
  for (const target of [canvas, strip]) {
    target.addEventListener("pointermove", hover);
    target.addEventListener("pointerleave", hideTip);
  }
  canvas.addEventListener("keydown", (event) => {
    const p = programs[chosen];
    const far = event.shiftKey ? Math.ceil(p.n / 50) : 1;
    const moves = new Map([["ArrowLeft", at - far], ["ArrowRight", at + far], ["Home", 0], ["End", p.n - 1], ["p", p.peak]]);
    if (!moves.has(event.key)) return;
    at = Math.max(0, Math.min(p.n - 1, moves.get(event.key)));
    event.preventDefault();
    draw();
  });

  section("Memory over the step", d.model, tabs,
    element("div", { class: "split" },
      element("div", {}, element("div", { class: "chart" }, canvas, strip), keys),
      panel),
    note("Bytes in use while each node runs. Hover, or use the arrow keys (with shift: larger steps; Home, End; p for the peak): the list shows what is live at that moment. The strip below is the schedule, with forward, backward and updates in different shades and recomputed nodes raised."));
  redraws.push(draw);
}

// --- drawing on a canvas -------------------------------------------------------------------------------------------

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

function label(context, text, x, y, align, fillColour) {
  context.textAlign = align;
  context.fillStyle = fillColour;
  context.fillText(text, x, y);
}

// A label above the plot with a thin line down to what it names.
function tag(context, text, right, y, target) {
  const width = context.measureText(text).width;
  label(context, text, right, y, "right", colour("--text"));
  line(context, right - width / 2, y + 4, right - width / 2, target, colour("--text"));
}

function outline(context, p, x, y) {
  context.save();
  context.strokeStyle = colour("--faint");
  context.lineWidth = 1.5;
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

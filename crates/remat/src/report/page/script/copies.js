// Copies to and from stores: a lane for the program with its waits and one for each channel, over the time of a step.

const LANE = 40, LANE_BAR = 16;
const directionOf = (copy) => (copy.way === "out" ? "to" : "from");
const copyColour = (copy) => seriesColour(copy.way === "out" ? 0 : 1);
const sumOf = (rows, get) => rows.reduce((total, row) => total + get(row), 0);

// `list` are lanes {name, bars: [{start, end, fill, text}]}; `end` is when the last of them ends.
function laneChart(title, list, end) {
  const height = 30 + LANE * list.length + 40;
  const ticks = marks(0, end, false);
  return responsive(title, 0, (width) => {
    const left = 8, right = width - 14, base = 30 + LANE * list.length;
    const x = (time) => left + (time / (end || 1)) * (right - left);
    const drawn = [svg("text", { class: "title", x: 4, y: 14 }, title)];
    let free = 0;
    for (const time of ticks) {
      const half = textWidth(roundSeconds(time)) / 2, at = Math.min(Math.max(x(time), half + 2), width - half - 2);
      drawn.push(svg("line", { class: "axis", x1: x(time), x2: x(time), y1: 26, y2: base + 5 }));
      if (at - half < free) continue;
      free = at + half + 14;
      drawn.push(svg("text", { x: at, y: base + 20, "text-anchor": "middle" }, roundSeconds(time)));
    }
    list.forEach((lane, i) => {
      const top = 30 + LANE * i, room = Math.floor((right - left) / LETTER);
      const name = lane.name.length > room ? `…${lane.name.slice(1 - room)}` : lane.name;
      drawn.push(svg("text", { x: left, y: top + 12 }, name), svg("line", { class: "axis", x1: left, x2: right, y1: top + 17 + LANE_BAR, y2: top + 17 + LANE_BAR }));
      for (const bar of lane.bars) {
        drawn.push(svg("rect", { x: x(bar.start), y: top + 17, width: Math.max(x(bar.end) - x(bar.start), 0.7), height: LANE_BAR, fill: bar.fill, onpointermove: (e) => showTip(e, bar.text), onpointerleave: hideTip }));
      }
    });
    return drawn;
  }, height);
}

// What the program does: stretches of one phase, and waits.
function programLane(program) {
  const shade = { forward: "var(--forward)", backward: "var(--backward)", optimizer: "var(--update)" };
  const waits = program.waits ?? [], bars = [];
  let now = 0, next = 0;
  program.runs.forEach((run, i) => {
    for (; next < waits.length && waits[next].run <= i; next += 1) now += waits[next].seconds;
    const fill = run.recompute ? RECOMPUTE : shade[run.phase] ?? "var(--faint)";
    const last = bars.at(-1);
    if (last && last.fill === fill && last.end === now) last.end = now + run.seconds;
    else bars.push({ start: now, end: now + run.seconds, fill, text: run.recompute ? "recomputes" : `runs: ${run.phase}` });
    now += run.seconds;
  });
  bars.push(...waits.map((wait) => ({ start: wait.start, end: wait.start + wait.seconds, fill: seriesColour(3), text: `waits ${seconds(wait.seconds)} for ${wait.value}` })));
  return { name: "program", bars };
}

// One lane per channel; `times` picks the planned or the measured times of a copy.
function channelLanes(copies, what, times) {
  const channels = new Map();
  for (const copy of copies.filter((c) => times(c))) {
    const name = `${directionOf(copy)} ${copy.store}${what}`;
    const [start, end] = times(copy);
    if (!channels.has(name)) channels.set(name, []);
    channels.get(name).push({ start, end, fill: copyColour(copy), text: `${copy.value}: ${bytes(copy.bytes)} in ${seconds(end - start)}` });
  }
  return [...channels].map(([name, bars]) => ({ name, bars }));
}

const endOf = (list) => list.reduce((latest, lane) => lane.bars.reduce((t, bar) => Math.max(t, bar.end), latest), 0);
const copyLegend = (more) => legend([["copied out", seriesColour(0)], ["copied in", seriesColour(1)], ...more]);

function copyTable(copies) {
  const taken = (times) => (times ? times[1] - times[0] : null);
  const measured = copies.some((c) => c.measured);
  return table(copies, [
    ["value", (c) => c.value, same, false],
    ["direction", (c) => `${c.way} (${c.store})`, same, false],
    ["size", (c) => c.bytes, bytes, true],
    ["planned start", (c) => c.planned[0], seconds, true],
    ["planned time", (c) => taken(c.planned), seconds, true],
    ...(measured ? [["start", (c) => c.measured?.[0], known(seconds), true], ["time", (c) => taken(c.measured), known(seconds), true]] : []),
  ], true);
}

function plannedCopies(model, program) {
  const { copies } = program;
  const waiting = sumOf(program.waits ?? [], (w) => w.seconds), copying = sumOf(copies, (c) => c.planned[1] - c.planned[0]);
  const list = [programLane(program), ...channelLanes(copies, "", (c) => c.planned)];
  section("Copies, as planned", model,
    cards(
      card(bytes(sumOf(copies.filter((c) => c.way === "out"), (c) => c.bytes)), "out to stores in a step"),
      card(bytes(sumOf(copies.filter((c) => c.way === "in"), (c) => c.bytes)), "in from stores in a step"),
      card(`${(copying > 0 ? 100 * (1 - Math.min(waiting / copying, 1)) : 100).toFixed(1)} %`, `of ${seconds(copying)} of copying is hidden behind nodes`),
      card(seconds(waiting), "the program waits for copies")),
    laneChart("the step over time", list, endOf(list)),
    copyLegend([["forward", "var(--forward)"], ["backward", "var(--backward)"], ["update", "var(--update)"], ["recomputing", RECOMPUTE], ["waiting", seriesColour(3)]]),
    ...copyTable(copies));
}

function measuredCopies(d) {
  const { moved } = d.result;
  const list = [...channelLanes(moved.copies, ", planned", (c) => c.planned), ...channelLanes(moved.copies, ", measured", (c) => c.measured)]
    .sort((a, b) => a.name.localeCompare(b.name) * -1);
  section("Copies, planned and measured", d.model,
    cards(
      card(`${moved.hidden_percent.toFixed(1)} %`, `of the copying was hidden; planned ${moved.planned_hidden_percent.toFixed(1)} %`),
      card(seconds(moved.wait_seconds.median), `a step waited for copies; planned ${seconds(moved.planned_wait_seconds)}`),
      card(seconds(moved.out.seconds), `${bytes(moved.out.bytes)} out; planned ${seconds(moved.out.planned_seconds)}`),
      card(seconds(moved.in.seconds), `${bytes(moved.in.bytes)} in; planned ${seconds(moved.in.planned_seconds)}`)),
    laneChart("copies over the time of a step", list, endOf(list)),
    copyLegend([]),
    ...copyTable(moved.copies),
    note("Measured in the last step. Times are seconds since the beginning of the step."));
}

function copySections() {
  for (const { document: d } of of("remat.timeline/1")) {
    for (const program of d.programs) if (program.copies?.length) plannedCopies(d.model, program);
  }
  for (const { document: d } of of("remat.compare/1")) if (d.result?.moved?.copies?.length) measuredCopies(d);
}

// Line charts and groups of bars, drawn at the width they have so that text keeps its size.

const CHART_HEIGHT = 330;
const LETTER = 6.8;
const textWidth = (text) => LETTER * [...String(text)].length;

// A round step that gives four to eight marks, in powers of two of bytes or of ten of anything else.
function roundStep(range, binary) {
  const base = binary ? 2 : 10;
  let step = base ** Math.floor(Math.log(range / 5) / Math.log(base));
  if (!binary) for (const factor of [5, 2]) if (range / (step * factor) >= 4) { step *= factor; break; }
  return step > 0 && Number.isFinite(step) ? step : 1;
}

function marks(from, to, binary) {
  const step = roundStep(to - from || 1, binary);
  const found = [];
  for (let i = Math.ceil(from / step - 1e-9); i * step <= to * (1 + 1e-9) && found.length < 20; i += 1) found.push(i * step);
  return found;
}

// A frame that calls `draw(width)` for the children of a chart whenever its width changes. `minimum` is the width below
// which the chart scrolls rather than shrinks.
function responsive(label, minimum, draw, height = CHART_HEIGHT) {
  const chart = svg("svg", { role: "img", "aria-label": label, height });
  const frame = element("div", { class: "chart" }, chart);
  redraws.push(() => {
    const width = Math.max(frame.clientWidth - 14, minimum, 240);
    chart.setAttribute("width", width);
    chart.setAttribute("viewBox", `0 0 ${width} ${height}`);
    chart.replaceChildren(...draw(width));
  });
  return frame;
}

// The vertical axis: its title above it, its marks left of it. Returns what is drawn and where values are.
function verticalAxis(title, values, text, width, bottom, [from, to]) {
  const L = 14 + Math.max(...values.map((v) => textWidth(text(v)))), R = 14, T = 30, B = bottom;
  const y = (v) => T + (1 - (v - from) / (to - from || 1)) * (CHART_HEIGHT - T - B);
  const drawn = [svg("text", { class: "title", x: 4, y: 14 }, title)];
  for (const v of values) {
    drawn.push(svg("line", { class: "axis", x1: L, x2: width - R, y1: y(v), y2: y(v) }),
      svg("text", { x: L - 8, y: y(v) + 4, "text-anchor": "end" }, text(v)));
  }
  return { drawn, y, left: L, right: width - R, base: CHART_HEIGHT - B };
}

// Lines over one pair of axes: `lines` are {name, points: [[x, y, text]], dashed}. The first may be wide, so that others on
// top of it do not hide it.
function lineChart(lines, xName, yName, xText, yText, { wideFirst = false, fromZero = true, binaryX = false } = {}) {
  const all = lines.flatMap((l) => l.points).filter((p) => Number.isFinite(p[0]) && Number.isFinite(p[1]));
  if (all.length === 0) return [note("There is nothing to draw: no value is a number.")];
  const range = (k) => all.reduce(([low, high], p) => [Math.min(low, p[k]), Math.max(high, p[k])], [Infinity, -Infinity]);
  const [x0, x1] = range(0), [low, high] = range(1);
  const from = fromZero || low < 0.4 * high ? Math.min(0, low) : low - 0.08 * (high - low || Math.abs(low) || 1);
  const to = high + 0.06 * (high - from || 1);
  const values = marks(from, to, false);
  const frame = responsive(`${yName} over ${xName}`, 0, (width) => {
    const { drawn, y, left, right, base } = verticalAxis(yName, values, yText, width, 44, [from, to]);
    const x = (v) => left + ((v - x0) / (x1 - x0 || 1)) * (right - left);
    let free = 0;
    for (const v of marks(x0, x1, binaryX)) {
      const half = textWidth(xText(v)) / 2, at = Math.min(x(v), width - half);
      if (at - half < free) continue;
      free = at + half + 14;
      drawn.push(svg("line", { class: "axis", x1: x(v), x2: x(v), y1: base, y2: base + 5 }), svg("text", { x: at, y: base + 19, "text-anchor": "middle" }, xText(v)));
    }
    drawn.push(svg("text", { class: "title", x: (left + right) / 2, y: CHART_HEIGHT - 6, "text-anchor": "middle" }, xName));
    lines.forEach((l, i) => {
      const stroke = seriesColour(i), points = l.points.filter((p) => Number.isFinite(p[1]));
      drawn.push(svg("polyline", { points: points.map((p) => `${x(p[0])},${y(p[1])}`).join(" "), fill: "none", stroke, "stroke-width": wideFirst && i === 0 ? 5 : 2, "stroke-dasharray": l.dashed ? `8 ${4 + 4 * i}` : null }));
      // Dots can be pointed at; on a long line they would only hide it.
      const every = Math.ceil(points.length / 100);
      for (const p of points.filter((_, k) => k % every === 0)) {
        drawn.push(svg("circle", { cx: x(p[0]), cy: y(p[1]), r: points.length > 40 ? 5 : 3.5, fill: points.length > 40 ? "transparent" : stroke, onpointermove: (e) => showTip(e, `${l.name}: ${p[2]}`), onpointerleave: hideTip }));
      }
    });
    return drawn;
  });
  return [frame, legend(lines.map((l, i) => [l.name, seriesColour(i), l.dashed ? "line dashed" : "line"]))];
}

// What all names have in common, and what sets each apart: `batch 4, image 64` and `batch 8, image 64` are `batch 4` and
// `batch 8` with `image 64`.
function apart(names) {
  const parts = (name) => name.split(", ");
  const shared = names.length > 1 ? parts(names[0]).filter((part) => names.every((name) => parts(name).includes(part))) : [];
  return { shared: shared.join(", "), names: names.map((name) => parts(name).filter((part) => !shared.includes(part))) };
}

// Groups of bars: `groups` are {name: [line, …], bars: [{value, text, label, spread, budget}]}, one bar per series. Without
// a value a cross is drawn; a series without any value is in the legend only.
function barChart(groups, series, yName, yText, binary) {
  const shown = series.map((_, i) => i).filter((i) => groups.some((g) => !isMissing(g.bars[i].value)));
  const drawnSeries = shown.length ? shown : series.map((_, i) => i);
  const bars = groups.flatMap((g) => drawnSeries.map((i) => g.bars[i]));
  const top = (bar) => Math.max((bar.value ?? 0) + (bar.spread ?? 0), bar.budget ?? 0);
  const to = Math.max(...bars.map(top), 1e-9) * 1.1;
  const values = marks(0, to, binary);
  const lines = Math.max(...groups.map((g) => g.name.length));
  const least = Math.max(...groups.flatMap((g) => g.name.map(textWidth)), 22 * drawnSeries.length) + 18;
  const frame = responsive(yName, 80 + least * groups.length, (width) => {
    const { drawn, y, left, right, base } = verticalAxis(yName, values, yText, width, 14 + 16 * lines, [0, to]);
    const place = (right - left) / groups.length;
    groups.forEach((group, g) => {
      const each = Math.min((0.84 * place) / drawnSeries.length, 90);
      const start = left + place * (g + 0.5) - (each * drawnSeries.length) / 2;
      drawnSeries.forEach((i, nth) => {
        const bar = group.bars[i], x = start + each * nth, middle = x + (each - 2) / 2;
        const point = { onpointermove: (e) => showTip(e, bar.text), onpointerleave: hideTip };
        if (isMissing(bar.value)) {
          drawn.push(svg("text", { class: "cross", x: middle, y: base - 5, "text-anchor": "middle", ...point }, "×"));
        } else {
          drawn.push(svg("rect", { x, y: y(bar.value), width: Math.max(each - 2, 1), height: Math.max(base - y(bar.value), 0), fill: seriesColour(i), ...point }));
          if (bar.label && each > textWidth(bar.label)) drawn.push(svg("text", { x: middle, y: y(top(bar)) - 5, "text-anchor": "middle" }, bar.label));
        }
        if (bar.spread) {
          const [high, low, reach] = [y(bar.value + bar.spread), y(Math.max(bar.value - bar.spread, 0)), Math.min(each / 5, 7)];
          drawn.push(svg("path", { class: "spread", d: `M${middle} ${low}V${high}M${middle - reach} ${high}h${2 * reach}M${middle - reach} ${low}h${2 * reach}` }));
        }
        if (!isMissing(bar.budget)) drawn.push(svg("line", { class: "budget", x1: x - 3, x2: x + each + 1, y1: y(bar.budget), y2: y(bar.budget) }));
      });
      group.name.forEach((part, k) => drawn.push(svg("text", { x: left + place * (g + 0.5), y: base + 16 * (k + 1), "text-anchor": "middle" }, part)));
    });
    return drawn;
  });
  const entries = drawnSeries.map((i) => [series[i], seriesColour(i)]);
  series.forEach((name, i) => { if (!drawnSeries.includes(i)) entries.push([`${name}: does not fit`, null, "absent"]); });
  if (bars.some((bar) => !isMissing(bar.budget))) entries.push(["budget", "var(--text)", "line dashed"]);
  if (bars.some((bar) => bar.spread)) entries.push(["spread of the measured steps", "var(--text)", "line"]);
  if (bars.some((bar) => isMissing(bar.value))) entries.push(["does not fit", null, "crossed"]);
  return [frame, legend(entries)];
}

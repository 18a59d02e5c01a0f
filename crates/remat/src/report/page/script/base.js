"use strict";
// The page reads the documents that commands wrote and draws what it finds. Every document has a `schema`; a section is
// shown when its documents are there. Text from documents only ever becomes text nodes and attribute values, never HTML.

const data = JSON.parse(document.getElementById("data").textContent);
const documents = data.documents;
const of = (schema) => documents.filter((d) => d.document.schema === schema);
const main = document.getElementById("main");
const tip = document.getElementById("tip");

const COLOURS = new Map(data.palette.kinds);
const KINDS = [...COLOURS.keys()];
const RECOMPUTE = data.palette.recompute;
const seriesColour = (i) => data.palette.series[i % data.palette.series.length];

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children.filter((c) => c !== null && c !== undefined));
  return node;
}
const element = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
const svg = (name, attributes = {}, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);

// --- numbers -------------------------------------------------------------------------------------------------------

const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

function byteUnit(n) {
  let unit = 0;
  while (n >= 1024 ** (unit + 1) && unit < BYTE_UNITS.length - 1) unit += 1;
  return unit;
}
function bytes(n) {
  const unit = byteUnit(n);
  return `${unit === 0 ? n : (n / 1024 ** unit).toFixed(2)} ${BYTE_UNITS[unit]}`;
}
// The same without zeros at the end, for marks of axes.
function roundBytes(n) {
  const unit = byteUnit(n);
  return `${Number((n / 1024 ** unit).toPrecision(3))} ${BYTE_UNITS[unit]}`;
}

function seconds(t) {
  if (t === 0) return "0 s";
  const [value, unit] = Math.abs(t) < 1e-3 ? [t * 1e6, "µs"] : Math.abs(t) < 1 ? [t * 1e3, "ms"] : [t, "s"];
  return `${value.toFixed(Math.abs(value) < 10 ? 2 : Math.abs(value) < 100 ? 1 : 0)} ${unit}`;
}
function roundSeconds(t) {
  const [value, unit] = t > 0 && t < 1e-3 ? [t * 1e6, "µs"] : t > 0 && t < 1 ? [t * 1e3, "ms"] : [t, "s"];
  return `${Number(value.toPrecision(3))} ${unit}`;
}

const isMissing = (value) => value === null || value === undefined;
// Missing values are shown as a dash.
const known = (show) => (value) => (isMissing(value) ? "–" : show(value));
const percent = (p) => `${p > 0 ? "+" : ""}${p.toFixed(1)} %`;
const count = (n) => Number(n).toLocaleString("en-US");
const short = (v) => String(Number(v.toPrecision(3)));
const same = (v) => v;

// --- parts of the page ---------------------------------------------------------------------------------------------

const note = (text) => element("p", { class: "note" }, text);
const cards = (...children) => element("div", { class: "cards" }, ...children);
const card = (value, what, kind = "") =>
  element("div", { class: "card" }, element("b", { class: kind }, value), element("span", {}, what));

const models = [...new Set(documents.map((d) => d.document.model ?? d.document.problem).filter((name) => typeof name === "string"))];
const families = [...new Set(models.map((name) => name.split("(")[0]))];
// Names that need not be repeated, because the title of the page says them.
const obvious = new Set();

// `about` names what the section is about, in its heading; ids come from the title alone and are numbered where it repeats.
const ids = new Map();
function section(title, about, ...children) {
  const word = title.toLowerCase().replace(/[^a-z]+/g, "-");
  const times = (ids.get(word) ?? 0) + 1;
  ids.set(word, times);
  const made = element("section", { id: times === 1 ? word : `${word}-${times}` },
    element("h2", {}, about && !obvious.has(about) ? `${title}: ${about}` : title), ...children);
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

// Charts are drawn for the width they have, and again when it or the theme changes.
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const redraws = [];

function legend(entries) {
  return element("div", { class: "legend" }, ...entries.map(([name, fillColour, kind]) =>
    element("span", {}, element("i", { class: kind ?? null, style: fillColour ? `--key:${fillColour}` : null }), name)));
}

// Tables that sort by any column and, if asked for, filter.

// `columns`: [title, row => value, value => text, is it a number]. Rows beyond the first 200 appear on demand.
function table(rows, columns, searchable) {
  const PAGE = 200;
  let sortBy = -1, ascending = true, wanted = "", shown = PAGE;
  const body = element("tbody");
  const status = element("span", { class: "note" });
  const more = element("button", { type: "button", onclick: () => { shown += 5 * PAGE; refill(); } }, "show more");
  const heads = columns.map(([title, , , isNumber], i) => element("th", { class: isNumber ? "number" : null, scope: "col" },
    element("button", { type: "button", onclick: () => { ascending = sortBy === i ? !ascending : !isNumber; sortBy = i; refill(); } }, title)));
  // Sentences get room, so that they do not become towers of single words on narrow screens.
  const cellClass = columns.map(([, get, show, isNumber]) =>
    (isNumber ? "number" : rows.some((row) => String(show(get(row))).length > 60) ? "long" : null));
  function refill() {
    const text = wanted.toLowerCase();
    const found = text ? rows.filter((row) => columns.some(([, get, show]) => String(show(get(row))).toLowerCase().includes(text))) : [...rows];
    if (sortBy >= 0) {
      const get = columns[sortBy][1];
      const order = (a, b) => (typeof a === "number" ? a - b : String(a).localeCompare(String(b)));
      // Missing values come last, whichever way the others are sorted.
      found.sort((a, b) => isMissing(get(a)) - isMissing(get(b)) || (isMissing(get(a)) ? 0 : (ascending ? 1 : -1) * order(get(a), get(b))));
    }
    heads.forEach((head, i) => head.setAttribute("aria-sort", i !== sortBy ? "none" : ascending ? "ascending" : "descending"));
    body.replaceChildren(...found.slice(0, shown).map((row) => element("tr", {},
      ...columns.map(([, get, show], i) => element("td", { class: cellClass[i] }, String(show(get(row))))))));
    status.textContent = `${count(found.length)} of ${count(rows.length)}`;
    more.hidden = found.length <= shown;
  }
  const search = element("input", { type: "search", placeholder: "filter", "aria-label": "filter rows", oninput: (event) => { wanted = event.target.value; refill(); } });
  refill();
  return [searchable ? element("div", { class: "row" }, search, status) : null,
    element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "table" },
      element("table", {}, element("thead", {}, element("tr", {}, ...heads)), body)), more].filter(Boolean);
}

// Names and values, for people.
const facts = (rows) => table(rows, [["what", (r) => r[0], same, false], ["value", (r) => r[1], same, false]], false);

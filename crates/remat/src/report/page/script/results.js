// One function per kind of document: answers first, then what explains them.

function comparisons() {
  for (const { document: d, file } of of("remat.compare/1")) {
    const r = d.result;
    const made = cards(card(d.fits ? "fits" : "does not fit", `${d.model} in ${bytes(d.budget_bytes)}`, d.fits ? "good" : "bad"));
    if (r) {
      const time = r.budgeted.step_seconds;
      made.append(
        card(bytes(r.budgeted.measured_peak_bytes), `measured peak; ${bytes(r.keep_all.measured_peak_bytes)} without a budget`),
        card(`${r.peak_share_percent.toFixed(1)} %`, "of the peak without recomputation"),
        card(percent(r.overhead_percent), `time: ${seconds(time.median)} ± ${seconds(time.spread)} a step${r.overhead_is_within_spread ? "; the difference is within the spread of single steps" : ""}`),
        card(r.bits_equal ? "equal" : "different", "bits of loss, gradients and parameters", r.bits_equal ? "good" : "bad"),
      );
    }
    section("Measured", d.model, made, note(`${file}: planner ${d.planner}; ${d.n_steps} steps of each program, alternating; the first is not timed. ${d.threads} threads, seed ${d.seed}.`));
  }
}

function plans() {
  for (const { document: d, file } of [...of("remat.plan/1"), ...of("remat.plan/2")]) {
    if (d.fits === undefined) continue;
    const gap = d.lower_bound > 0 ? 100 * (d.cost / d.lower_bound - 1) : null;
    const made = cards(
      card(d.fits ? "fits" : "does not fit", `in ${bytes(d.budget_bytes)}`, d.fits ? "good" : "bad"),
      card(bytes(d.arena_bytes ?? d.peak_bytes), d.fits ? `predicted peak; ${bytes(d.keep_all_peak_bytes)} without a plan` : "lowest peak that was reached"),
      card(bytes(d.floor_bytes), `floor: no plan needs less; set by ${d.floor_node}`),
    );
    if (d.fits) {
      made.append(
        card(percent(d.overhead_percent), `time, predicted; ${count(d.n_recomputes)} nodes run again`),
        card(d.status === "optimal" ? "optimal" : gap === null ? "unknown" : `≤ ${gap.toFixed(2)} %`, "distance from the cheapest plan, proved"),
      );
    }
    if (d.moves) {
      const price = (cost) => (d.moves.cost_unit === "s" ? seconds(cost) : `${short(cost)} ${d.moves.cost_unit}`);
      const faster = d.moves.faster.map((f) => `${price(f.saves)} with ${f.percent} % more`).join(", ");
      const into = (way) => bytes(sumOf(d.moves.links.filter((link) => link.way === way), (link) => link.bytes));
      made.append(
        card(count(d.moves.values.length), `values are moved: ${into("out")} out, ${into("in")} in; ${bytes(d.moves.resting_bytes)} rest in a store between steps`),
        card(`${d.moves.hidden_percent.toFixed(1)} %`, `of the copying is hidden behind nodes; a step waits ${price(d.moves.waiting)}`),
        card(price(d.moves.faster.at(-1).saves), `is what a store of twice the speed would save, with the same plan (${faster} GB/s)`),
      );
    }
    section("Plan", d.problem, made, note(`${file}: planner ${d.planner}, ${seconds(d.planning_seconds)}, ${count(d.n_nodes)} nodes.`));
  }
}

function decisions() {
  for (const { document: d } of of("remat.decisions/1")) {
    const having = (decision) => d.rows.filter((r) => r.decision === decision);
    const [kept, dropped, moved] = ["RETAINED", "RECOMPUTE", "MOVED"].map(having);
    const sum = (rows) => rows.reduce((t, r) => t + r.median_mem_size_bytes, 0);
    section("Decisions", null,
      element("p", {}, `Of ${count(d.rows.length)} activations (${bytes(sum(d.rows))}), ${count(kept.length)} are kept (${bytes(sum(kept))}), ${count(dropped.length)} recomputed (${bytes(sum(dropped))}) and ${count(moved.length)} moved to a store and back (${bytes(sum(moved))}).`),
      ...table(d.rows, [
        ["activation", (r) => r.activation_name, same, false],
        ["decision", (r) => r.decision, same, false],
        ["size", (r) => r.median_mem_size_bytes, bytes, true],
        ["to recompute", (r) => r.recomp_time_s, seconds, true],
        ["made at rank", (r) => r.creation_rank, count, true],
        ["needed at rank", (r) => r.first_bw_use_rank, known(count), true],
      ], true));
  }
}

function profiles() {
  for (const { document: d, file } of of("remat.profile/2")) {
    const peak = d.peak ? Object.entries(d.peak.by_kind_bytes).sort((a, b) => b[1] - a[1]) : [];
    section("Profile", d.model,
      cards(
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
      d.swap ? note(`Moving all ${count(d.swap.n_activations)} activations (${bytes(d.swap.bytes)}) to ${d.swap.stores.join(", ")} takes ${seconds(d.swap.out_seconds)} out and ${seconds(d.swap.in_seconds)} in; ${count(d.swap.n_idle_long_enough)} of them (${bytes(d.swap.idle_long_enough_bytes)}) are idle for longer than their copies take.`) : null,
      note(`${file}: ${d.threads} threads; ${d.cost === "measured" ? "each node run alone, median of repeated runs after a warm-up" : "calculated from the machine's speeds"}.`));
  }
}

function frontiers() {
  for (const { document: d, file } of of("remat.frontier/1")) {
    const points = d.points.filter((p) => !isMissing(p.cost));
    if (points.length === 0) continue;
    const over = (cost) => 100 * (cost / d.keep_all_cost - 1);
    const plan = { name: `cheapest plan found (${d.planner})`, points: points.map((p) => [p.peak_bytes, over(p.cost), `${bytes(p.peak_bytes)}, ${percent(over(p.cost))}`]) };
    const bound = { name: "lower bound: no plan is below", dashed: true, points: points.filter((p) => p.lower_bound).map((p) => [p.peak_bytes, Math.max(0, over(p.lower_bound)), `${bytes(p.peak_bytes)}, at least ${percent(over(p.lower_bound))}`]) };
    const other = (d.without_stores?.points ?? []).filter((p) => !isMissing(p.cost));
    if (other.length) plan.name = `${plan.name}, with stores`;
    const without = other.length ? [{ name: "without stores", points: other.map((p) => [p.peak_bytes, over(p.cost), `${bytes(p.peak_bytes)}, ${percent(over(p.cost))}`]) }] : [];
    section("Frontier", d.problem, ...lineChart([plan, bound, ...without], "peak memory", "extra time", roundBytes, (v) => `${short(v)} %`, { binaryX: true }),
      note(`${file}: what each amount of memory costs in time; ${count(points.length)} plans, each checked. No plan needs less than ${bytes(d.floor_bytes)}.`));
  }
}

function sweeps() {
  for (const { document: d, file } of of("remat.sweep/1")) {
    const cases = [...new Set(d.rows.map((r) => r.case))];
    const series = [...new Set(d.rows.map((r) => r.program))];
    const { shared, names } = apart(cases);
    const groups = (value, text, share, more) => cases.map((c, i) => ({
      name: names[i],
      bars: series.map((s) => {
        const r = d.rows.find((r) => r.case === c && r.program === s);
        if (!r) return { text: `${c}, ${s}: not measured` };
        const missing = isMissing(value(r));
        return {
          value: value(r), text: `${c}, ${s}: ${missing ? r.note ?? "does not fit" : text(r)}`,
          label: isMissing(share(r)) || isMissing(r.budget_bytes) ? "" : `${share(r) > 0 ? "+" : ""}${share(r).toFixed(0)} %`, ...more(r),
        };
      }),
    }));
    const peak = (r) => r.measured_peak_bytes ?? r.predicted_peak_bytes;
    const time = (r) => r.step_seconds?.median;
    // What is checkpointed by hand has no budget but its own peak.
    const budget = (r) => ({ budget: r.planner === "checkpoint" ? null : r.budget_bytes });
    section("Sweep", shared ? `${d.model}, ${shared}` : d.model,
      element("h3", {}, "Peak memory"),
      ...barChart(groups(peak, (r) => bytes(peak(r)), (r) => r.peak_change_percent, budget), series, "peak memory", roundBytes, true),
      element("h3", {}, "Time of a step"),
      ...barChart(groups(time, (r) => `${seconds(time(r))} ± ${seconds(r.step_seconds.spread)}`, (r) => r.overhead_percent, (r) => ({ spread: r.step_seconds?.spread })), series, "time of a step", roundSeconds, false),
      ...table(d.rows, [
        ["case", (r) => names[cases.indexOf(r.case)].join(", ") || r.case, same, false],
        ["program", (r) => r.program, same, false],
        ["peak", peak, known(bytes), true],
        ["change", (r) => r.peak_change_percent, known(percent), true],
        ["time", time, known(seconds), true],
        ["spread", (r) => r.step_seconds?.spread, known(seconds), true],
        ["overhead", (r) => r.overhead_percent, known(percent), true],
        ["is it noise", (r) => (isMissing(r.overhead_is_within_spread) ? null : r.overhead_is_within_spread ? "within the spread" : "no"), known(same), false],
        ["planned", (r) => r.planned_overhead_percent, known(percent), true],
        ...(d.rows.some((r) => r.copied) ? [
          ["moved out", (r) => r.copied?.out_bytes, known(bytes), true],
          ["moved in", (r) => r.copied?.in_bytes, known(bytes), true],
          ["waits", (r) => r.waiting_seconds?.median, known(seconds), true],
        ] : []),
        ["gap", (r) => r.gap_percent, known((p) => `≤ ${p.toFixed(2)} %`), true],
        ["note", (r) => r.note ?? "", same, false],
      ], true),
      note(`${file}: whole training steps, programs alternating, ${d.n_rounds} rounds of ${d.n_steps} timed steps after ${d.n_warm_up ?? 1} to warm up. Times are medians; the spread is half the distance between the quartiles. ${d.threads} threads.`));
  }
}

const shownFact = (key, value) => (key.endsWith("_bytes") && typeof value === "number" ? bytes(value) : key.endsWith("_seconds") && typeof value === "number" ? seconds(value) : String(value));
const factRows = (d) => Object.entries(d).filter(([k, v]) => k !== "schema" && !isMissing(v) && typeof v !== "object")
  .map(([k, v]) => [k.replace(/_(bytes|seconds)$/, "").replaceAll("_", " "), shownFact(k, v)]);

// Documents without a section of their own are shown by their plain fields, so that no page is empty.
function others(known) {
  for (const { document: d, file } of documents.filter((o) => !known.includes(o.document.schema))) {
    const rows = factRows(d);
    if (rows.length) section("Other results", d.model ?? d.problem ?? d.schema, ...facts(rows), note(`${file}: ${d.schema}.`));
  }
}

function environment() {
  const rows = of("remat.environment/1").flatMap(({ document: d }) => factRows(d));
  const files = documents.map((d) => `${d.file} (${d.document.schema})`).join(", ");
  section("How it was measured", null, ...(rows.length ? facts(rows) : []), note(`Made from: ${files}. Peaks are sizes of the arena in which the whole step runs, to the byte: parameters, gradients, optimizer state, activations, temporaries and workspaces.`));
}

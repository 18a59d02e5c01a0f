// Training runs and loss logs.

function trainings() {
  for (const { document: d, file } of of("remat.train/1")) {
    const steps = d.steps ?? [];
    const last = steps.at(-1);
    const evaluated = steps.filter((s) => !isMissing(s.eval_loss));
    const held = evaluated.at(-1);
    const made = cards();
    if (!d.fits) {
      made.append(card("does not fit", isMissing(d.budget_bytes) ? "this machine's memory" : `in ${bytes(d.budget_bytes)}`, "bad"),
        card(bytes(d.floor_bytes), `floor: no plan needs less; set by ${d.floor_node}`));
    }
    if (d.diverged) made.append(card("diverged", d.diverged, "bad"));
    if (last) made.append(card(isMissing(last.loss) ? "not finite" : String(Number(last.loss.toPrecision(6))), `loss in step ${count(last.step)}; ${known(short)(steps[0].loss)} in step ${count(steps[0].step)}`));
    if (held) {
      const accuracy = isMissing(held.eval_accuracy) ? "" : `, accuracy ${(100 * held.eval_accuracy).toFixed(1)} %`;
      const best = evaluated.reduce((a, b) => (b.eval_loss < a.eval_loss ? b : a));
      made.append(card(short(held.eval_loss), `held-out loss in step ${count(held.step)}${accuracy}; lowest ${short(best.eval_loss)} in step ${count(best.step)}`));
    }
    if (!isMissing(d.measured_peak_bytes)) {
      const matches = d.measured_peak_bytes === d.predicted_peak_bytes ? ", as predicted" : isMissing(d.predicted_peak_bytes) ? "" : `; predicted ${bytes(d.predicted_peak_bytes)}`;
      made.append(card(bytes(d.measured_peak_bytes), `measured peak${matches}; ${bytes(d.keep_all_peak_bytes)} without recomputation`));
    }
    if (d.step_seconds) {
      const speeds = steps.map((s) => s.per_second).sort((a, b) => a - b);
      const speed = speeds[Math.floor(speeds.length / 2)];
      made.append(card(isMissing(speed) ? "–" : `${count(Math.round(speed))} / s`, `${d.unit}, median; ${seconds(d.step_seconds.median)} ± ${seconds(d.step_seconds.spread)} a step`));
    }
    const budget = isMissing(d.budget_bytes) ? "none: everything is kept" : `${bytes(d.budget_bytes)} (${((100 * d.budget_bytes) / d.keep_all_peak_bytes).toFixed(1)} % of the peak without recomputation)`;
    if (d.fits) made.append(card(count(d.n_recomputes), isMissing(d.budget_bytes) ? "nodes recomputed; there is no budget" : `nodes recomputed in a step, within ${bytes(d.budget_bytes)}`));
    const curve = (name, get, rows, dashed) => ({ name, dashed, points: rows.map((s) => [s.step, get(s), `step ${count(s.step)}, ${get(s)}`]) });
    const lines = [curve("training loss", (s) => s.loss, steps, false)];
    if (held) lines.push(curve("held-out loss", (s) => s.eval_loss, evaluated, true));
    const rows = [
      ["model", `${d.model}, ${count(d.n_parameters)} parameters`],
      ["data", d.data],
      ["optimizer", `${d.optimizer}, learning rate ${d.learning_rate}`],
      ["budget", budget],
      ["floor", `${bytes(d.floor_bytes)}: no plan needs less; set by ${d.floor_node}`],
      ["recomputed nodes in a step", d.fits ? count(d.n_recomputes) : null],
      ["peak of the process", known(bytes)(d.peak_resident_bytes)],
      ["resumed after step", d.resumed_from_step],
      ["stopped early", d.stopped ? "yes" : null],
      ["images that could not be read", d.skipped_images?.length ? `${count(d.skipped_images.length)}: ${d.skipped_images.join("; ")}` : null],
      ["checkpoint", d.checkpoint],
      ["weights", d.saved],
    ].filter(([, value]) => !isMissing(value));
    section("Training", d.model, made,
      ...(steps.length ? lineChart(lines, "step", "loss", (v) => count(Math.round(v)), short, { fromZero: false }) : []),
      element("h3", {}, "Plan and settings"),
      ...facts(rows),
      note(`${file}: ${count(steps.length)} steps, seed ${d.seed}, ${d.threads} threads.`));
  }
}

function losses() {
  const logs = of("remat.loss_log/1");
  if (logs.length === 0) return;
  const first = new Map(logs[0].document.points);
  const equals = (points) => points.every(([step, loss]) => !first.has(step) || first.get(step) === loss);
  const identical = (points) => points.length === first.size && points.every(([step, loss]) => first.get(step) === loss);
  const lines = logs.map(({ document: d }, i) => ({
    name: i > 0 && identical(d.points) ? `${d.name} (identical to ${logs[0].document.name})` : d.name,
    dashed: i > 0, points: d.points.map(([step, loss]) => [step, loss, `step ${step}, ${loss}`]),
  }));
  const equal = logs.every(({ document: d }) => equals(d.points));
  const verdict = logs.length > 1 ? element("p", { class: equal ? "good" : "bad" }, equal ? "All logs are equal in every step they share." : "The logs differ.") : null;
  section("Loss", null, ...[verdict].filter(Boolean),
    ...lineChart(lines, "step", "loss", (v) => count(Math.round(v)), short, { wideFirst: logs.length > 1, fromZero: false }));
}

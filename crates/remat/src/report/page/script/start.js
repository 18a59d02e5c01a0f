// The title, what the page shows in its order, and the theme.

// The title names the model if there is one, with its options if all documents agree on them. Documents of several models
// have nothing in common but this page; their sections name them.
if (families.length === 1) {
  const detailed = models.filter((name) => name !== families[0]);
  const title = detailed.length === 1 && of("remat.sweep/1").length === 0 ? detailed[0] : families[0];
  document.getElementById("title").textContent = title;
  document.title = `${families[0]}: remat report`;
  obvious.add(families[0]).add(title);
} else if (families.length > 1) {
  document.getElementById("about").textContent = `${families.length} models: ${families.join(", ")}`;
}

const SHOWN = ["compare/1", "plan/1", "plan/2", "timeline/1", "decisions/1", "train/1", "sweep/1", "frontier/1", "loss_log/1", "profile/2", "environment/1"].map((s) => `remat.${s}`);
for (const show of [comparisons, plans, trainings, timelines, copySections, decisions, sweeps, frontiers, losses, profiles]) show();
others(SHOWN);
environment();

const sections = [...document.querySelectorAll("section")];
if (sections.length > 3) {
  document.getElementById("contents").append(...sections.map((s) => element("a", { href: `#${s.id}` }, s.querySelector("h2").textContent)));
}

const redraw = () => redraws.forEach((draw) => draw());
const root = document.documentElement;
root.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
document.getElementById("theme").addEventListener("click", () => {
  root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
  redraw();
});
redraw();
addEventListener("resize", redraw);
document.body.dataset.ready = "true";

//! The report in a real browser, wide and as narrow as a telephone: it loads without errors, everything that can be
//! clicked, hovered and typed works, all text can be read, and no name from a file runs as a script.
//!
//! Needs Chromium (`chromium`, or the program that `REMAT_CHROMIUM` names). Without one the test says so, and
//! `cargo xtask test` counts it as skipped.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

fn remat(arguments: &[&str], folder: &Path) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_remat"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("the binary was built for this test");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("reports are text")
}

fn browser() -> Option<PathBuf> {
    let named = std::env::var_os("REMAT_CHROMIUM").map(PathBuf::from);
    let on_path = || {
        let path = std::env::var_os("PATH")?;
        let names = ["chromium", "chromium-browser", "google-chrome"];
        std::env::split_paths(&path).flat_map(|p| names.map(|name| p.join(name))).find(|p| p.is_file())
    };
    named.or_else(on_path)
}

/// Everything a reader can do, done by events; what happened is sent to the page around this one.
const EXERCISE: &str = r##"
<script>
addEventListener("load", () => {
  const said = [];
  const expect = (what, holds) => said.push(`${holds ? "ok" : "FAILED"}: ${what}`);
  try {
    expect(`the page is as wide as the frame (${innerWidth})`, innerWidth === WIDTH);
    expect("the page is ready", document.body.dataset.ready === "true");
    const sections = [...document.querySelectorAll("section")].map((s) => s.id);
    for (const wanted of ["measured", "plan", "plan-2", "training", "memory-over-the-step", "copies-as-planned", "copies-planned-and-measured", "decisions", "profile", "sweep", "sweep-2", "frontier", "loss", "how-it-was-measured"]) {
      expect(`section ${wanted} among ${sections}`, sections.includes(wanted));
    }
    expect("the answer comes first", sections[0] === "measured" && document.querySelector("section .card b").textContent === "fits");

    // The timeline.
    const timeline = document.getElementById("memory-over-the-step");
    const canvas = timeline.querySelector("canvas");
    const panel = timeline.querySelector(".panel");
    expect("the peak is shown first", panel.textContent.includes("the peak"));
    const box = canvas.getBoundingClientRect();
    canvas.dispatchEvent(new PointerEvent("pointermove", { clientX: box.left + 76, clientY: box.top + 60, bubbles: true }));
    expect("hovering shows the first run", /run [12] of/.test(panel.textContent));
    expect("hovering shows a tip", !document.getElementById("tip").hidden && document.getElementById("tip").textContent.length > 5);
    canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "Home", bubbles: true }));
    canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true }));
    expect("an arrow key moves the cursor", panel.textContent.includes("run 2 of"));
    canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "p", bubbles: true }));
    expect("p goes to the peak", panel.textContent.includes("the peak"));
    expect("live values are listed", panel.querySelectorAll("li").length > 3);
    const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    const hex = (i) => "#" + [0, 1, 2].map((k) => pixels[i + k].toString(16).padStart(2, "0")).join("").toUpperCase();
    const drawn = new Set();
    for (let i = 0; i < pixels.length; i += 4) if (pixels[i + 3] === 255) drawn.add(hex(i));
    const palette = JSON.parse(document.getElementById("data").textContent).palette;
    for (const kind of ["parameter", "optimizer_state", "activation"]) {
      expect(`${kind} has its colour`, drawn.has(new Map(palette.kinds).get(kind).toUpperCase()));
    }

    // Copies: a lane for the program and one for each channel, twice where they were measured.
    const planned = document.getElementById("copies-as-planned");
    const lanes = [...planned.querySelectorAll("svg text")].map((t) => t.textContent);
    for (const lane of ["program", "to host", "from host"]) expect(`a lane for ${lane} among ${lanes}`, lanes.includes(lane));
    const copied = [...planned.querySelectorAll("rect")];
    for (const i of [0, 1]) expect(`copies in direction ${i} are drawn`, copied.some((r) => r.getAttribute("fill") === palette.series[i]));
    expect("bars are inside the step", copied.every((r) => Number(r.getAttribute("x")) >= 0 && Number(r.getAttribute("width")) > 0));
    // Which copies there are depends on the speed of the store; small ones are told in bytes, and waits have no size.
    const tips = copied.map((r) => {
      r.dispatchEvent(new PointerEvent("pointermove", { clientX: 50, clientY: 50, bubbles: true }));
      return document.getElementById("tip").textContent;
    });
    expect(`copies tell their sizes: ${tips}`, tips.some((tip) => tip.includes("B in ")));
    const measured = [...document.querySelectorAll("#copies-planned-and-measured svg text")].map((t) => t.textContent);
    for (const lane of ["to host, planned", "to host, measured", "from host, measured"]) expect(`a lane for ${lane} among ${measured}`, measured.includes(lane));
    expect("moved activations are among the decisions", document.getElementById("decisions-2").textContent.includes("MOVED"));
    expect("the plan tells what is hidden", document.getElementById("plan-2").textContent.includes("hidden behind nodes"));
    expect("the frontier has a curve without stores", document.querySelectorAll("#frontier polyline").length === 3);

    // Tables.
    const decisions = document.getElementById("decisions");
    const rows = () => decisions.querySelectorAll("tbody tr").length;
    const before = rows();
    const filter = decisions.querySelector("input[type=search]");
    filter.value = "layers.1";
    filter.dispatchEvent(new Event("input"));
    expect(`the filter filters (${before} to ${rows()})`, rows() > 0 && rows() < before);
    filter.value = "";
    filter.dispatchEvent(new Event("input"));
    const size = [...decisions.querySelectorAll("th")].find((h) => h.textContent === "size");
    size.querySelector("button").click();
    expect("a column sorts", size.getAttribute("aria-sort") === "descending");

    // Charts of sweeps: bars in the colours of the pictures, budgets, spreads, crosses.
    const sweep = document.getElementById("sweep");
    const fills = [...sweep.querySelectorAll("rect")].map((r) => r.getAttribute("fill"));
    expect(`bars have the colours of the palette: ${fills}`, fills.length >= 4 && fills[0] === palette.series[0] && fills.includes(palette.series[1]));
    expect("budgets are drawn", sweep.querySelectorAll("line.budget").length >= 1);
    expect("times have a spread", sweep.querySelectorAll("path.spread").length >= 2);
    const hostile = document.getElementById("sweep-2");
    expect("what does not fit has a cross", hostile.querySelectorAll("text.cross").length >= 1);

    // Training and losses.
    const training = document.getElementById("training").textContent;
    for (const words of ["loss in step 3", "held-out loss in step", "measured peak", "examples", "nodes recomputed", "budget"]) {
      expect(`training says ${words}`, training.includes(words));
    }
    expect("training has two curves", document.querySelectorAll("#training polyline").length === 2);
    const loss = document.getElementById("loss");
    expect("equal logs say so", loss.textContent.includes("(identical to"));
    expect("equal curves differ in width", new Set([...loss.querySelectorAll("polyline")].map((l) => l.getAttribute("stroke-width"))).size === 2);

    // Everything can be read: text keeps its size, no two texts of a chart overlap, nothing is wider than the page.
    for (const chart of document.querySelectorAll(".chart svg")) {
      const name = `${chart.closest("section").id}: ${chart.getAttribute("aria-label")}`;
      expect(`${name} is not scaled`, Math.abs(chart.getBoundingClientRect().width - Number(chart.getAttribute("width"))) < 1);
      const texts = [...chart.querySelectorAll("text")].map((t) => [t.textContent, t.getBoundingClientRect(), parseFloat(getComputedStyle(t).fontSize)]);
      expect(`${name} has letters of at least 11 px`, texts.every(([, , size]) => size >= 11));
      const frame = chart.getBoundingClientRect();
      for (const [text, b] of texts) expect(`${name}: "${text}" is inside`, b.left >= frame.left - 1 && b.right <= frame.right + 1);
      const cover = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3;
      texts.forEach(([text, a], i) => texts.slice(i + 1).forEach(([other, b]) => { if (cover(a, b)) expect(`${name}: "${text}" and "${other}" overlap`, false); }));
    }
    expect(`the page does not scroll sideways (${document.documentElement.scrollWidth})`, document.documentElement.scrollWidth <= innerWidth);
    for (const table of document.querySelectorAll("table")) {
      expect("a wide table scrolls", table.offsetWidth <= table.parentElement.clientWidth || getComputedStyle(table.parentElement).overflowX === "auto");
    }

    // Names from files are text.
    expect("no name became a script or an event", window.hacked === undefined);
    expect("no name became an element", document.querySelectorAll("main img, main script, main b b").length === 0);
    expect("names are shown as they are", hostile.textContent.includes("<img src=x onerror=") && document.getElementById("about").textContent.includes("<\/script>"));

    const theme = document.documentElement.dataset.theme;
    document.getElementById("theme").click();
    expect("the theme switches", document.documentElement.dataset.theme !== theme);
  } catch (error) {
    said.push(`FAILED: ${error.stack}`);
  }
  setTimeout(() => {
    if (window.hacked !== undefined) said.push("FAILED: a name ran as a script");
    parent.postMessage([...said, ...window.faults.map((f) => `FAILED: ${f}`), "end"].join("\n"), "*");
  }, 50);
});
</script>
"##;
const COLLECT: &str = r#"<script>window.faults = []; addEventListener("error", (e) => window.faults.push(e.message));
const complain = console.error; console.error = (...words) => { window.faults.push(words.join(" ")); complain(...words); };</script>"#;

/// A browser window cannot be as narrow as a telephone; a frame in it can.
const FRAME: &str = r#"<!doctype html><body><pre id="test-result"></pre>
<script>addEventListener("message", (e) => { document.getElementById("test-result").textContent = e.data; });</script>
<iframe srcdoc="PAGE" style="width:WIDTHpx;height:900px;border:0"></iframe></body>"#;

/// A sweep in which every name that a file can hold tries to run as a script.
fn hostile_sweep() -> String {
    let names = ["</script><script>window.hacked = 1</script>", "<img src=x onerror=window.hacked=1>"];
    let row = |program: &str, peak: Option<u64>| {
        serde_json::json!({
            "case": format!("batch 4, {}", names[1]), "program": program, "planner": "best", "budget_bytes": 1 << 20,
            "predicted_peak_bytes": peak, "note": format!("{}\u{1b}[31m", names[1]),
        })
    };
    let rows = [row("fits", Some(1 << 20)), row(names[0], Some(2 << 20)), row("fits", None)];
    let mut rows = rows.to_vec();
    rows[2]["case"] = "batch 8, __proto__".into();
    let sweep = serde_json::json!({
        "schema": "remat.sweep/1", "model": names[0], "optimizer": names[1], "threads": 1, "n_rounds": 1, "n_steps": 1,
        "rows": rows,
    });
    sweep.to_string()
}

#[test]
fn the_report_works_in_a_browser() {
    let Some(browser) = browser() else {
        // Past the harness, which hides what passing tests print.
        let why = "no Chromium was found (set REMAT_CHROMIUM)";
        writeln!(std::io::stdout().lock(), "SKIPPED the_report_works_in_a_browser: {why}").unwrap();
        return;
    };
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    let model =
        ["mlp", "--batch", "512", "--width", "64", "--layers", "5", "--features", "32", "--cost", "analytic"];
    let with = |command: &str, more: &[&str]| -> Vec<String> {
        std::iter::once(command).chain(model).chain(more.iter().copied()).map(str::to_owned).collect()
    };
    let run =
        |arguments: Vec<String>| remat(&arguments.iter().map(String::as_str).collect::<Vec<_>>(), folder);
    run(with("profile", &["--out", "results"]));
    run(with("plan", &["--budget", "80%", "--effort", "0.1", "--out", "results"]));
    run(with(
        "sweep",
        &["--budget", "80%", "--effort", "0.1", "--rounds", "1", "--steps", "4", "--out", "results"],
    ));
    let moving = ["--planner", "swap", "--store", "host"];
    let moved = |command, more: &[&str]| run(with(command, &[&moving[..], more].concat()));
    moved("plan", &["--budget", "80%", "--out", "results/moved"]);
    let compared = moved("compare", &["--budget", "80%", "--steps", "2", "--json"]);
    fs::write(folder.join("results/moved/compare.json"), compared).unwrap();
    let frontier = moved("frontier", &["--points", "4", "--json"]);
    fs::write(folder.join("results/frontier.json"), frontier).unwrap();
    let train = |more: &[&str]| {
        let arguments =
            ["train", "mlp", "--batch", "512", "--width", "64", "--layers", "5", "--features", "32"];
        let settings = ["--steps", "3", "--eval-every", "1", "--eval-batches", "1", "--json"];
        remat(&[&arguments[..], &settings, more].concat(), folder)
    };
    fs::write(folder.join("results/train.json"), train(&["--log", "results/a.csv", "--budget", "80%"]))
        .unwrap();
    train(&["--log", "results/b.csv"]);
    // After `sweep.json`, so that the true sweep comes first.
    fs::write(folder.join("results/sweep_hostile.json"), hostile_sweep()).unwrap();
    remat(&["report", "results", "results/moved", "--out", "report.html"], folder);

    let page = fs::read_to_string(folder.join("report.html")).unwrap();
    assert!(!page.contains("src=\"") && !page.contains("<link"), "the page needs nothing from elsewhere");
    for width in ["1400", "400"] {
        let exercise = EXERCISE.replace("WIDTH", width);
        let page = page
            .replace("<body>", &format!("<body>{COLLECT}"))
            .replace("</body>", &format!("{exercise}</body>"));
        let quoted = page.replace('&', "&amp;").replace('"', "&quot;");
        fs::write(folder.join("frame.html"), FRAME.replace("WIDTH", width).replace("PAGE", &quoted)).unwrap();
        let output = Command::new(&browser)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .args(["--disable-quic", "--virtual-time-budget=8000", "--window-size=1500,1000", "--dump-dom"])
            .arg(format!("--user-data-dir={}", folder.join("profile").display()))
            .arg(format!("file://{}", folder.join("frame.html").display()))
            .output()
            .unwrap();
        let dom = String::from_utf8_lossy(&output.stdout);
        let result =
            dom.split("<pre id=\"test-result\">").nth(1).and_then(|rest| rest.split("</pre>").next());
        let result = result.unwrap_or_default();
        let failed: Vec<&str> = result.lines().filter(|line| line.contains("FAILED")).collect();
        assert!(result.ends_with("end"), "{width} pixels: the page did not run to its end: {result}");
        assert!(failed.is_empty(), "{width} pixels: {failed:#?}");
    }
}

//! The report in a real browser: it loads without errors, hovering and the keyboard move the cursor, the filter filters,
//! the columns sort, and the theme switches.
//!
//! Needs Chromium (`chromium`, or the program that `REMAT_CHROMIUM` names). Without one the test says so and passes.

use std::fs;
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

/// Everything a reader can do, done by events; what happened is left in the page as text.
const EXERCISE: &str = r##"
<script>
addEventListener("load", () => {
  const said = [];
  const expect = (what, holds) => said.push(`${holds ? "ok" : "FAILED"}: ${what}`);
  try {
    expect("the page is ready", document.body.dataset.ready === "true");
    const text = (id) => document.getElementById(id)?.textContent ?? "";
    const sections = [...document.querySelectorAll("section")].map((s) => s.id);
    for (const wanted of ["plan", "decisions", "profile-mlp", "sweep-mlp", "frontier-memory-against-time", "how-it-was-measured"]) {
      expect(`section ${wanted} among ${sections}`, sections.includes(wanted));
    }
    expect("the answer comes first", sections[0] === "plan" && document.querySelector("section .card b").textContent === "fits");
    const timeline = [...document.querySelectorAll("section")].find((s) => s.id.startsWith("memory-over-the-step"));
    const canvas = timeline.querySelector("canvas");
    const panel = timeline.querySelector(".panel");
    expect("the peak is shown first", panel.textContent.includes("the peak"));
    const box = canvas.getBoundingClientRect();
    canvas.dispatchEvent(new PointerEvent("pointermove", { clientX: box.left + 80, clientY: box.top + 60, bubbles: true }));
    expect("hovering shows the first run", panel.textContent.includes("run 1 of"));
    expect("hovering shows a tip", !document.getElementById("tip").hidden && document.getElementById("tip").textContent.length > 5);
    canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true }));
    expect("an arrow key moves on", panel.textContent.includes("run 2 of"));
    canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "p", bubbles: true }));
    expect("p goes to the peak", panel.textContent.includes("the peak"));
    expect("live values are listed", panel.querySelectorAll("li").length > 3);
    const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    const colours = new Set();
    for (let i = 0; i < pixels.length; i += 4) if (pixels[i + 3] > 200) colours.add(`${pixels[i]},${pixels[i + 1]},${pixels[i + 2]}`);
    expect(`the chart has colours (${colours.size})`, colours.size > 4);
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
    const theme = document.documentElement.dataset.theme;
    document.getElementById("theme").click();
    expect("the theme switches", document.documentElement.dataset.theme !== theme);
    expect("bars are drawn", document.querySelectorAll("#sweep-mlp rect").length >= 2);
  } catch (error) {
    said.push(`FAILED: ${error.stack}`);
  }
  const result = document.createElement("pre");
  result.id = "test-result";
  result.textContent = [...said, ...window.faults.map((f) => `FAILED: ${f}`), "end"].join("\n");
  document.body.append(result);
});
</script>
"##;
const COLLECT: &str = r#"<script>window.faults = []; addEventListener("error", (e) => window.faults.push(e.message));
const complain = console.error; console.error = (...words) => { window.faults.push(words.join(" ")); complain(...words); };</script>"#;

#[test]
fn the_report_works_in_a_browser() {
    let Some(browser) = browser() else {
        eprintln!("NOT RUN: the report was not opened, no Chromium was found (set REMAT_CHROMIUM)");
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
        &["--budget", "80%", "--effort", "0.1", "--rounds", "1", "--steps", "1", "--out", "results"],
    ));
    let frontier = run(with("frontier", &["--points", "4", "--json"]));
    fs::write(folder.join("results/frontier.json"), frontier).unwrap();
    remat(&["report", "results", "--out", "report.html"], folder);

    let page = fs::read_to_string(folder.join("report.html")).unwrap();
    assert!(!page.contains("src=") && !page.contains("<link"), "the page needs nothing from elsewhere");
    let page =
        page.replace("<body>", &format!("<body>{COLLECT}")).replace("</body>", &format!("{EXERCISE}</body>"));
    fs::write(folder.join("exercise.html"), page).unwrap();
    for size in ["1400,1000", "480,900"] {
        let output = Command::new(&browser)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
                "--disable-background-networking",
            ])
            .args([
                "--disable-component-update",
                "--disable-sync",
                "--disable-quic",
                "--virtual-time-budget=5000",
            ])
            .arg(format!("--window-size={size}"))
            .arg(format!("--user-data-dir={}", folder.join("profile").display()))
            .arg("--dump-dom")
            .arg(format!("file://{}", folder.join("exercise.html").display()))
            .output()
            .unwrap();
        let dom = String::from_utf8_lossy(&output.stdout);
        let start = dom.find("<pre id=\"test-result\">").unwrap_or_else(|| {
            panic!(
                "the page did not run: {}\n{}",
                String::from_utf8_lossy(&output.stderr),
                &dom[..dom.len().min(2000)]
            )
        });
        let result = dom[start..].split("</pre>").next().unwrap();
        assert!(result.contains("end") && !result.contains("FAILED"), "window {size}: {result}");
    }
}

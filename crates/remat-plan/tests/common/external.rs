//! The external checker of plans with stores, as a process that answers line by line.

use super::planning_dir;
use remat_plan::{PLAN_SCHEMA, PLAN_SCHEMA_2, Plan, Problem};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Reads lines of [problem, plan] and answers each with whether it is valid, its peak, its cost and some faults.
const ASK: &str = "
import json, sys
sys.path.insert(0, sys.argv[1])
from check_plan2 import check
for line in sys.stdin:
    report = check(*json.loads(line))
    print(int(report.ok), report.peak, float(report.cost).hex(), *report.faults[:2], flush=True)
";

/// Why there is none.
pub(crate) const NO_CHECKER: &str =
    "no check_plan2.py and python3 are here; set REMAT_PLANNING_DIR to its folder";

/// A running checker.
pub(crate) struct External {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl External {
    /// Starts it, where it and Python are present.
    pub(crate) fn start() -> Option<External> {
        let folder = planning_dir().filter(|folder| folder.join("check_plan2.py").exists())?;
        let command = Command::new("python3")
            .args(["-c", ASK])
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = command.ok()?;
        let (to, from) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        Some(External { child, to: Some(to), from: BufReader::new(from) })
    }

    /// Whether a plan is valid, and the line that says so.
    pub(crate) fn ask(&mut self, problem: &Problem, plan: &Plan) -> (bool, String) {
        // A plan of the first version may not name stores, not even wrongly.
        let text = plan.to_json().replace(PLAN_SCHEMA, PLAN_SCHEMA_2);
        let to = self.to.as_mut().expect("open until the end");
        writeln!(to, "[{},{text}]", problem.to_json()).expect("the checker reads");
        let mut answer = String::new();
        self.from.read_line(&mut answer).expect("the checker answers");
        assert!(!answer.is_empty(), "the external checker ended");
        (answer.starts_with('1'), answer.trim_end().to_string())
    }
}

impl Drop for External {
    fn drop(&mut self) {
        // The end of its input ends it.
        self.to = None;
        let _ = self.child.wait();
    }
}

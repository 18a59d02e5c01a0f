//! The planner as the Python module `remat._remat`: problems and plans go in and come out as JSON.
//!
//! In: `remat.problem` and `remat.plan` texts (docs/formats.md). Out: the same, and small JSON objects where a file
//! format would be too much. Bad input is a `ValueError` with every fault; a bug of ours is a `RuntimeError`. The
//! planners run without the interpreter lock, so other Python threads keep running. Everything about tensors is Python's
//! business: this file must stay a translation.

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use remat_plan as plan;
use remat_plan::{Budget, Bytes, NodeId, Request};
use serde_json::json;
use std::fmt::Display;
use std::time::Duration;

fn bad_input(error: impl Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// An unknown planner is the caller's mistake; an invalid plan is ours.
fn solver_error(error: plan::Error) -> PyErr {
    match error {
        plan::Error::UnknownPlanner { .. } => bad_input(error),
        plan::Error::Bug { .. } => PyRuntimeError::new_err(error.to_string()),
    }
}

/// A validated planning problem.
#[pyclass(frozen, module = "remat._remat")]
struct Problem {
    inner: plan::Problem,
}

fn request(budget: u64, time_limit: Option<f64>, effort: Option<f64>, seed: u64) -> PyResult<Request> {
    let time_limit = time_limit
        .map(Duration::try_from_secs_f64)
        .transpose()
        .map_err(|error| bad_input(format!("the time limit is not a number of seconds: {error}")))?;
    Ok(Request { time_limit, effort, seed, ..Request::new(Bytes(budget)) })
}

#[pymethods]
impl Problem {
    /// Reads `remat.problem` and checks it.
    #[new]
    fn new(py: Python<'_>, text: &str) -> PyResult<Problem> {
        let inner = py.detach(|| plan::Problem::from_json(text)).map_err(bad_input)?;
        Ok(Problem { inner })
    }

    /// Plans for a budget in bytes; returns `remat.plan` and, when there is no plan, the reason.
    #[pyo3(signature = (budget, *, planner = "best", time_limit = None, effort = None, seed = 0))]
    fn solve(
        &self,
        py: Python<'_>,
        budget: u64,
        planner: &str,
        time_limit: Option<f64>,
        effort: Option<f64>,
        seed: u64,
    ) -> PyResult<(String, Option<String>)> {
        let request = request(budget, time_limit, effort, seed)?;
        let outcome = py.detach(|| plan::solve(&self.inner, planner, &request)).map_err(solver_error)?;
        let reason = match &outcome {
            plan::Outcome::Infeasible { why, .. } => Some(why.to_string()),
            plan::Outcome::Optimal(_) | plan::Outcome::Feasible(..) => None,
        };
        Ok((outcome.to_plan(&self.inner, planner, request.budget).to_json(), reason))
    }

    /// Every fault of a plan; an empty list means that it is valid.
    fn check(&self, plan_text: &str) -> PyResult<Vec<String>> {
        let plan = plan::Plan::from_json(plan_text, &self.inner).map_err(bad_input)?;
        Ok(plan::check(&self.inner, &plan).iter().map(ToString::to_string).collect())
    }

    /// The same steps with the peak, the cost and the stalls that they have here, and without a bound, as JSON: `plan`, and
    /// `transfers` (value, store, way, start, end), `stalls`.
    fn price(&self, plan_text: &str) -> PyResult<String> {
        let mut plan = plan::Plan::from_json(plan_text, &self.inner).map_err(bad_input)?;
        let run = plan::simulate_with(&self.inner, &plan.stored, &plan.steps).map_err(bad_input)?;
        plan.peak_bytes = run.peak;
        plan.cost = run.cost;
        plan.lower_bound = None;
        plan.status = plan::Status::Feasible;
        let transfers: Vec<_> = run
            .transfers
            .iter()
            .map(|copy| {
                json!([
                    copy.value.index(),
                    copy.store.index(),
                    copy.way == plan::Way::In,
                    copy.start,
                    copy.end
                ])
            })
            .collect();
        Ok(json!({ "plan": plan.to_json(), "transfers": transfers, "stalls": run.stalls }).to_string())
    }

    /// The peak that no plan goes below, as JSON: bytes, node (or null), name, and the sentence that says why.
    fn floor(&self, py: Python<'_>) -> String {
        let floor = py.detach(|| plan::memory_floor(&self.inner));
        json!({
            "bytes": floor.bytes.0,
            "node": floor.node.map(NodeId::index),
            "name": floor.node_name,
            "why": floor.to_string(),
        })
        .to_string()
    }

    /// Plans for several budgets between the floor and the peak without recomputation, as a JSON object.
    #[pyo3(signature = (n_points, *, planner = "best", time_limit = None, effort = None, seed = 0))]
    fn frontier(
        &self,
        py: Python<'_>,
        n_points: usize,
        planner: &str,
        time_limit: Option<f64>,
        effort: Option<f64>,
        seed: u64,
    ) -> PyResult<String> {
        let request = request(0, time_limit, effort, seed)?;
        let frontier = py
            .detach(|| plan::frontier(&self.inner, planner, n_points, &request, |_| ()))
            .map_err(solver_error)?;
        let points: Vec<_> = frontier
            .points
            .iter()
            .map(|point| {
                json!({
                    "budget_bytes": point.budget.0,
                    "lowest_peak": point.lowest_peak.0,
                    "cost": point.plan.as_ref().map(|plan| plan.cost),
                    "lower_bound": point.lower_bound,
                })
            })
            .collect();
        Ok(json!({ "base_cost": frontier.base_cost, "points": points }).to_string())
    }

    /// What sets the peak, what is recomputed and what it costs, as text.
    fn explain(&self, plan_text: &str) -> PyResult<String> {
        let plan = plan::Plan::from_json(plan_text, &self.inner).map_err(bad_input)?;
        plan::explain(&self.inner, &plan).map(|explanation| explanation.to_string()).map_err(bad_input)
    }
}

/// Bytes of a budget such as `8GiB`, or `50%` of the peak without recomputation.
#[pyfunction]
fn budget_bytes(text: &str, keep_all_peak: u64) -> PyResult<u64> {
    let budget: Budget = text.parse().map_err(bad_input)?;
    Ok(budget.resolve(Bytes(keep_all_peak)).0)
}

/// A number of bytes for people, such as `1.50 GiB`.
#[pyfunction]
fn format_bytes(bytes: u64) -> String {
    Bytes(bytes).to_string()
}

/// The planner of `remat-plan` for Python.
#[pymodule]
fn _remat(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Problem>()?;
    module.add_function(wrap_pyfunction!(budget_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(format_bytes, module)?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("PLANNERS", plan::PLANNERS.iter().map(|planner| planner.name).collect::<Vec<_>>())
}

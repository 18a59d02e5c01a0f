//! The text cases in tests/corpus/: every stage from graph to layout, and every fault that a verifier or checker reports.
//!
//! Sections (the form of a case is told in crates/remat-plan/tests/common/corpus.rs):
//!
//! | input | what it is |
//! |---|---|
//! | `graph` | a graph in text form: a forward pass, or a step |
//! | `optimizer` | as JSON |
//! | `roles` | what the values of the graph are for beside the loss, which is its first output (edit.rs) |
//! | `order` | the nodes of the planning problem in the order of their runs; what can be freed is freed |
//! | `moves` | copies to and from two stores: `stored V STORE`, and `at I STEP` for a step in front of step `I` of that plan; `without I` leaves that step out |
//! | `edit` | changes to the graph, the schedule or the layout before it is checked (edit.rs) |
//!
//! | expected | what is answered |
//! |---|---|
//! | `error` | why the graph is not read, differentiated or evaluated |
//! | `text`, `dot` | the graph as it is printed |
//! | `verify` | the faults of the edited graph; `verify ids` has bare ids |
//! | `gradients`, `step` | the graph differentiated; with the updates of the optimizer |
//! | `fuse` | the graph as a fused step, if it passes its checker |
//! | `check fuse` | the faults of the edited graph as the fused form of the graph |
//! | `problem` | the planning problem, every node costs 1 |
//! | `plan`, `schedule`, `layout` | the plan of the order, the plan carried out, its places |
//! | `layout around` | its places around those that `placed` lines of `edit` give |
//! | `check schedule`, `check layout` | the faults of the edited schedule or layout |
//! | `evaluation`, `prediction` | the graph as it runs without training |

#[path = "../../../remat-plan/tests/common/corpus.rs"]
#[allow(dead_code)] // The runner serves several crates.
mod corpus;
mod edit;
mod kinds;

use corpus::{Case, Section, replay};
use kinds::Seen;
use remat::fuse::{self, fuse};
use remat::graph::Graph;
use remat::ids::IdVec;
use remat::layout::{self, Layout};
use remat::optimizer::Optimizer;
use remat::problem::{PlanningProblem, with_stores};
use remat::profile::StoreSpeed;
use remat::rewrite::{self, Schedule};
use remat::step::{TrainingStep, differentiate, evaluation_pass, prediction_pass, training_step};
use remat::store::{Kind, Setup};
use remat_plan::{Bytes, NodeId, Plan, Status, Step, StoreId, ValueId, free_early, simulate_with};
use std::fmt::Write as _;
use std::path::Path;

#[test]
fn cases_are_answered_as_written() {
    let seen = Seen::default();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let n_cases = replay(&folder, |case, section| answer(&Asked { case, seen: &seen }, section));
    assert!(n_cases >= 40, "{n_cases} cases");
    seen.assert_complete();
}

fn answer(asked: &Asked<'_>, section: &Section) -> Option<String> {
    Some(match section.name.as_str() {
        "graph" | "optimizer" | "roles" | "order" | "moves" | "edit" => return None,
        "error" => asked.error(),
        "text" => asked.graph().to_text(),
        "dot" => asked.graph().to_dot(),
        "verify" | "verify ids" => {
            let mut graph = asked.graph();
            asked.edits(|words| edit::graph(&mut graph, words));
            let faults = graph.verify();
            faults.iter().for_each(|fault| asked.seen.graph(fault));
            if section.name == "verify ids" {
                lines(&faults)
            } else {
                lines(faults.iter().map(|fault| fault.with_names(&graph)))
            }
        }
        "gradients" => nodes(&differentiate(&asked.graph()).expect("a graph with gradients").graph),
        "step" => step_text(&asked.training_step()),
        "fuse" => {
            let step = asked.step();
            let fused = fuse(&step);
            assert_eq!(fused.graph.verify(), Vec::new());
            assert_eq!(fuse::check(&step, &fused), Vec::new());
            let text = fused.graph.to_text();
            assert_eq!(Graph::from_text(&text).expect("printed text parses"), fused.graph);
            step_text(&fused)
        }
        "check fuse" => {
            let step = asked.step();
            let mut fused = fuse(&step);
            asked.edits(|words| edit::step(&mut fused, words));
            let faults = fuse::check(&step, &fused);
            faults.iter().for_each(|fault| asked.seen.fusion(fault));
            lines(faults.iter().map(|fault| fault.with_names(&fused.graph)))
        }
        "problem" => asked.problem(&asked.graph()).problem.to_text(),
        "plan" => {
            let problem = asked.problem(&asked.graph());
            asked.plan(&problem).to_text(&problem.problem)
        }
        "schedule" => {
            let schedule = asked.schedule();
            schedule.to_text() + &outputs(&schedule.graph)
        }
        "check schedule" => {
            let (graph, mut schedule) = (asked.graph(), asked.schedule());
            asked.edits(|words| edit::schedule(&mut schedule, words));
            let faults = rewrite::check(&graph, &schedule);
            faults.iter().for_each(|fault| asked.seen.schedule(fault));
            lines(faults.iter().map(|fault| fault.with_names(&graph)))
        }
        "layout" => layout_text(&asked.layout(&asked.schedule())),
        "layout around" => {
            let mut schedule = asked.schedule();
            let (mut layout, mut placed) = (asked.layout(&schedule), Vec::new());
            asked.edits(|words| edit::layout(&mut schedule, &mut layout, &mut placed, words));
            layout_text(&layout::assign_around(&schedule, &placed, Bytes(0)).expect("a right layout"))
        }
        "check layout" => {
            let mut schedule = asked.schedule();
            let mut layout = asked.layout(&schedule);
            let mut placed = Vec::new();
            asked.edits(|words| edit::layout(&mut schedule, &mut layout, &mut placed, words));
            let faults = layout::check(&schedule, &layout, &placed);
            faults.iter().for_each(|fault| asked.seen.layout(fault));
            lines(faults.iter().map(|fault| fault.with_names(&schedule.graph)))
        }
        "evaluation" => {
            let forward = asked.graph();
            let training = asked.training_step();
            evaluation_pass(&forward, &training.graph).expect("a pass").graph.to_text()
        }
        "prediction" => prediction_pass(&asked.graph(), None).expect("a pass").graph.to_text(),
        other => panic!("{}: unknown section `{other}`", asked.case.file.display()),
    })
}

/// A case while it is answered.
struct Asked<'a> {
    case: &'a Case,
    seen: &'a Seen,
}

impl Asked<'_> {
    fn has(&self, name: &str) -> bool {
        self.case.sections.iter().any(|section| section.name == name)
    }

    fn optional(&self, name: &str) -> &str {
        if self.has(name) { self.case.section(name) } else { "" }
    }

    fn graph(&self) -> Graph {
        let graph = Graph::from_text(self.case.section("graph"));
        graph.unwrap_or_else(|error| panic!("{}: {error}", self.case.file.display()))
    }

    /// The first thing that goes wrong.
    fn error(&self) -> String {
        let error = match Graph::from_text(self.case.section("graph")) {
            Err(error) => Some(error),
            Ok(graph) => differentiate(&graph).err().or_else(|| prediction_pass(&graph, None).err()),
        };
        error.unwrap_or_else(|| panic!("{}: there is no error", self.case.file.display())).to_string()
    }

    fn edits(&self, mut apply: impl FnMut(&[&str])) {
        for line in self.case.section("edit").lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            apply(&words);
        }
    }

    fn training_step(&self) -> TrainingStep {
        let optimizer: Optimizer =
            serde_json::from_str(self.case.section("optimizer")).expect("an optimizer in JSON");
        training_step(&self.graph(), &optimizer).expect("a graph with gradients")
    }

    /// The graph with its roles.
    fn step(&self) -> TrainingStep {
        if self.has("optimizer") {
            return self.training_step();
        }
        let graph = self.graph();
        let roles = edit::roles(&graph, self.optional("roles"));
        TrainingStep { graph, roles }
    }

    fn problem(&self, graph: &Graph) -> PlanningProblem {
        let store = (Setup::new(Kind::Host), StoreSpeed::nominal());
        let stores = if self.has("moves") { vec![store.clone(), store] } else { Vec::new() };
        with_stores(graph, &IdVec::filled(graph.nodes.len(), 1.0), &stores).expect("a valid problem")
    }

    /// What is stored at the start, and the steps with the moves of the case between them.
    fn moves(&self, steps: Vec<Step>) -> (Vec<(ValueId, StoreId)>, Vec<Step>) {
        fn id(word: &str) -> usize {
            word.trim_start_matches('%').parse().expect("a number")
        }
        let (mut stored, mut left_out) = (Vec::new(), Vec::new());
        let mut added: Vec<(usize, Step)> = Vec::new();
        for line in self.optional("moves").lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (value, store) = (|word| ValueId::new(id(word)), |word| StoreId::new(id(word)));
            let step = match words[..] {
                ["stored", v, s] => {
                    stored.push((value(v), store(s)));
                    continue;
                }
                ["without", i] => {
                    left_out.push(id(i));
                    continue;
                }
                ["at", _, "free", v] => Step::Free(value(v)),
                ["at", _, "out", v, s] => Step::Out(value(v), store(s)),
                ["at", _, "in", v, s] => Step::In(value(v), store(s)),
                ["at", _, "discard", v, s] => Step::Discard(value(v), store(s)),
                _ => panic!("unknown move {line}"),
            };
            added.push((id(words[1]), step));
        }
        let mut all = Vec::new();
        for position in 0..=steps.len() {
            all.extend(added.iter().filter(|(at, _)| *at == position).map(|(_, step)| *step));
            all.extend(steps.get(position).filter(|_| !left_out.contains(&position)));
        }
        (stored, all)
    }

    fn plan(&self, problem: &PlanningProblem) -> Plan {
        let numbers = self.case.section("order").split_whitespace();
        let order: Vec<NodeId> = numbers.map(|n| NodeId::new(n.parse().expect("a number"))).collect();
        let (stored, steps) = self.moves(free_early(&problem.problem, &order));
        let simulation = simulate_with(&problem.problem, &stored, &steps).expect("a valid order");
        Plan {
            problem: problem.problem.name.clone(),
            planner: "by hand".into(),
            status: Status::Feasible,
            budget_bytes: simulation.peak,
            peak_bytes: simulation.peak,
            cost: simulation.cost,
            lower_bound: None,
            stored,
            steps,
        }
    }

    fn schedule(&self) -> Schedule {
        let graph = self.graph();
        let problem = self.problem(&graph);
        rewrite::apply(&graph, &problem, &self.plan(&problem)).expect("a right schedule")
    }

    fn layout(&self, schedule: &Schedule) -> Layout {
        let layout = layout::assign(schedule, Bytes(0)).expect("a right layout");
        let graph = self.graph();
        assert_eq!(
            layout.used,
            self.plan(&self.problem(&graph)).peak_bytes,
            "what is planned is what is used"
        );
        layout
    }
}

fn lines<T: std::fmt::Display>(list: impl IntoIterator<Item = T>) -> String {
    let text: String = list.into_iter().map(|item| format!("{item}\n")).collect();
    if text.is_empty() { "no fault\n".to_owned() } else { text }
}

fn nodes(graph: &Graph) -> String {
    graph.nodes.iter().map(|node| graph.node_text(node) + "\n").collect()
}

fn outputs(graph: &Graph) -> String {
    graph.outputs.iter().map(|value| format!("output {value}\n")).collect()
}

/// A step, and what its values are for.
fn step_text(step: &TrainingStep) -> String {
    let TrainingStep { graph, roles } = step;
    let mut text = graph.to_text();
    let _ = writeln!(text, "# loss {}", roles.loss);
    for (parameter, gradient) in &roles.gradients {
        let _ = writeln!(text, "# gradient {parameter} {gradient}");
    }
    if let Some(norm) = roles.gradient_norm {
        let _ = writeln!(text, "# norm {norm}");
    }
    text
}

/// One line per place; an output that lies on an input says so.
fn layout_text(layout: &Layout) -> String {
    let mut text = format!("arena {} used {}\n", layout.arena.0, layout.used.0);
    for (value, offset) in layout.offset.enumerate() {
        let _ = writeln!(text, "{value} {}", offset.map_or("-".to_owned(), |offset| offset.to_string()));
    }
    for (node, offset) in layout.workspace.enumerate().filter_map(|(node, at)| Some((node, (*at)?))) {
        let _ = writeln!(text, "workspace {node} {offset}");
    }
    for (slot, offset) in layout.slots.enumerate() {
        let _ = writeln!(text, "slot {slot} {offset}");
    }
    for (store, size) in layout.stores.iter().enumerate() {
        let _ = writeln!(text, "store {store} {}", size.0);
    }
    for (node, pairs) in layout.shared.enumerate().filter(|(_, pairs)| !pairs.is_empty()) {
        let pairs: Vec<String> = pairs.iter().map(|(input, output)| format!("{input}:{output}")).collect();
        let _ = writeln!(text, "shared {node} {}", pairs.join(" "));
    }
    text
}

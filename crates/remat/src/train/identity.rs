//! What makes two runs the same run: a checkpoint is continued only by the run that wrote it.

use super::{Decay, LearningRate};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::hash;
use crate::optimizer::{Optimizer, Rule};
use std::collections::BTreeMap;

/// What must be the same for a run to continue where another stopped. Budget, planner and threads are not part of it:
/// they do not change a bit.
#[derive(Clone, PartialEq, Debug)]
pub struct Identity {
    /// The model with all its options.
    pub model: String,
    /// A hash of its forward graph: what the name does not say, such as the layers of a model of your own.
    pub graph: String,
    /// How gradients become updates.
    pub optimizer: Optimizer,
    /// The rate of every step.
    pub learning_rate: LearningRate,
    /// Seed of weights, data and dropout.
    pub seed: u64,
    /// What the data is: its kind and a fingerprint.
    pub data: String,
}

/// Whether a resumed run keeps the learning rates that it began with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Schedule {
    /// The rates must be the same: the resumed run has the bits of one that never stopped.
    Same,
    /// The rates of the resuming run count from here on.
    New,
}

impl Identity {
    /// The run of a model.
    pub fn of(
        forward: &Graph,
        optimizer: Optimizer,
        learning_rate: LearningRate,
        seed: u64,
        data: impl Into<String>,
    ) -> Identity {
        let graph = format!("{:016x}", hash::bytes(forward.to_text().as_bytes()));
        Identity { model: forward.name.clone(), graph, optimizer, learning_rate, seed, data: data.into() }
    }

    /// Names and values as noted in a file.
    pub(super) fn notes(&self) -> Result<BTreeMap<&'static str, String>> {
        let json = |text: serde_json::Result<String>| {
            text.map_err(|e| Error::Bug { stage: "checkpoint", faults: vec![e.to_string()] })
        };
        Ok(BTreeMap::from([
            ("model", self.model.clone()),
            ("graph", self.graph.clone()),
            ("optimizer", json(serde_json::to_string(&self.optimizer))?),
            ("learning_rate", json(serde_json::to_string(&self.learning_rate))?),
            ("seed", self.seed.to_string()),
            ("data", self.data.clone()),
        ]))
    }

    /// Why this run may not continue the run with these notes, in words; `None` when it may.
    pub(super) fn refuses(&self, notes: &BTreeMap<&str, &str>, schedule: Schedule) -> Result<Option<String>> {
        let mine = self.notes()?;
        let theirs = |name: &str| notes.get(name).copied().unwrap_or("nothing");
        let mut differences = Vec::new();
        for name in ["model", "data", "seed"] {
            differences.extend(difference(name, theirs(name), &mine[name]));
        }
        // The hash alone says little; where the name differs too, that says it. Older files have none.
        if differences.is_empty() && notes.get("graph").is_some_and(|then| *then != self.graph) {
            differences.push(format!(
                "the layers of {} or their settings were others (graph {}, now {}); for a listed model REMAT_WINOGRAD \
                 and the version of this program decide them too",
                self.model,
                theirs("graph"),
                self.graph
            ));
        }
        let (before, after) = (serde_json::from_str(theirs("optimizer")), self.optimizer);
        differences.extend(compared(before, "optimizer", optimizer_facts, &after));
        let (before, after) = (serde_json::from_str(theirs("learning_rate")), self.learning_rate);
        let rates: Vec<String> = compared(before, "learning rate", rate_facts, &after);
        let is_schedule_all = differences.is_empty();
        if schedule == Schedule::Same {
            differences.extend(rates);
        }
        if differences.is_empty() {
            return Ok(None);
        }
        let list = differences.join("\n  ");
        Ok(Some(if is_schedule_all {
            format!(
                "this run would have other learning rates than the one that wrote it:\n  {list}\n\
                 give the same values, or --new-schedule to continue with the new rates"
            )
        } else {
            format!("belongs to another run and cannot be continued by this one:\n  {list}")
        }))
    }
}

fn difference(name: &str, then: &str, now: &str) -> Option<String> {
    (then != now).then(|| format!("{name} was {then}, now it is {now}"))
}

/// Every fact that differs. A note that cannot be read differs as a whole.
fn compared<T: PartialEq>(
    before: serde_json::Result<T>,
    name: &str,
    facts: impl Fn(&T) -> Vec<(&'static str, String)>,
    after: &T,
) -> Vec<String> {
    let Ok(before) = before else { return vec![format!("{name} cannot be read from the file")] };
    let (then, now) = (facts(&before), facts(after));
    let value = |facts: &[(&str, String)], name: &str| {
        facts.iter().find(|fact| fact.0 == name).map_or_else(|| "none".to_owned(), |fact| fact.1.clone())
    };
    let mut names: Vec<&str> = then.iter().chain(&now).map(|fact| fact.0).collect();
    let mut seen = std::collections::BTreeSet::new();
    names.retain(|name| seen.insert(*name));
    names.iter().filter_map(|name| difference(name, &value(&then, name), &value(&now, name))).collect()
}

/// Everything but the learning rate, which the schedule repeats.
fn optimizer_facts(optimizer: &Optimizer) -> Vec<(&'static str, String)> {
    let mut facts = vec![("optimizer", optimizer.name().to_owned())];
    match optimizer.rule {
        Rule::Sgd { momentum, weight_decay, nesterov } => facts.extend([
            ("momentum", momentum.to_string()),
            ("Nesterov momentum", nesterov.to_string()),
            ("weight decay", weight_decay.to_string()),
        ]),
        Rule::Adam { weight_decay } | Rule::AdamW { weight_decay } => {
            facts.push(("weight decay", weight_decay.to_string()));
        }
    }
    facts.extend(optimizer.clip_norm.map(|norm| ("clipping norm", norm.to_string())));
    facts.push(("number of batches per update", optimizer.micro_batches.to_string()));
    facts
}

fn rate_facts(rate: &LearningRate) -> Vec<(&'static str, String)> {
    let mut facts =
        vec![("learning rate", rate.peak.to_string()), ("warm-up", format!("{} steps", rate.warmup))];
    let shape = match rate.decay {
        Decay::Constant => return facts,
        Decay::Cosine => "cosine",
        Decay::Linear => "linear",
    };
    facts.extend([
        ("schedule", format!("{shape} over {} steps", rate.end)),
        ("final share of the learning rate", rate.floor.to_string()),
    ]);
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cosine(end: u64) -> LearningRate {
        LearningRate { peak: 1e-3, warmup: 2, decay: Decay::Cosine, floor: 0.1, end }
    }

    fn run(seed: u64, optimizer: Optimizer, learning_rate: LearningRate) -> Identity {
        let (model, graph, data) = ("mlp".to_owned(), "1".to_owned(), "synthetic".to_owned());
        Identity { model, graph, optimizer, learning_rate, seed, data }
    }

    fn refusal(then: &Identity, now: &Identity, schedule: Schedule) -> Option<String> {
        let notes = then.notes().unwrap();
        let notes = notes.iter().map(|(name, value)| (*name, value.as_str())).collect();
        now.refuses(&notes, schedule).unwrap()
    }

    #[test]
    fn differences_are_told_in_words() {
        let then = run(1, Optimizer::adam(1e-3), cosine(50));
        assert_eq!(refusal(&then, &then, Schedule::Same), None);
        let longer = run(1, Optimizer::adam(1e-3), cosine(100));
        let message = refusal(&then, &longer, Schedule::Same).unwrap();
        assert!(
            message.contains("schedule was cosine over 50 steps, now it is cosine over 100 steps"),
            "{message}"
        );
        assert!(message.contains("--new-schedule") && !message.contains('{'), "{message}");
        assert_eq!(refusal(&then, &longer, Schedule::New), None);
        let deeper = Identity { graph: "2".to_owned(), ..then.clone() };
        let message = refusal(&then, &deeper, Schedule::New).unwrap();
        assert!(message.contains("another run") && message.contains("the layers of mlp"), "{message}");
        // Files of earlier versions do not say.
        let mut notes = then.notes().unwrap();
        notes.remove("graph");
        let notes = notes.iter().map(|(name, value)| (*name, value.as_str())).collect();
        assert_eq!(deeper.refuses(&notes, Schedule::Same).unwrap(), None);
        let faster = run(1, Optimizer::adam(1e-2), LearningRate::constant(1e-2));
        assert_eq!(refusal(&then, &faster, Schedule::New), None);

        let clipped = Optimizer { clip_norm: Some(0.5), ..Optimizer::sgd(1e-3) };
        let other = run(2, clipped, cosine(50));
        let message = refusal(&then, &other, Schedule::New).unwrap();
        for part in [
            "another run",
            "seed was 1, now it is 2",
            "optimizer was adam, now it is sgd",
            "momentum was none",
        ] {
            assert!(message.contains(part), "`{part}` is missing: {message}");
        }
        assert!(
            message.contains("clipping norm was none, now it is 0.5") && !message.contains('{'),
            "{message}"
        );
    }
}

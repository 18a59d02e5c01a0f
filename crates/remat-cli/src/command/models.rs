//! `remat models`: the table of models, or one model with its options.

use crate::answer::Answer;
use crate::flags::model_parser;
use crate::format::{Align, count, facts, table};
use crate::output::{Output, Paint, Report};
use anyhow::Result;
use clap::Args;
use remat::model::{MODELS, ModelInfo, Options};
use serde::Serialize;

/// Lists the models that can be trained, with their options.
#[derive(Debug, Args)]
pub(crate) struct Flags {
    /// Show only this model, with the meaning of its options.
    #[arg(value_parser = model_parser(), hide_possible_values = true)]
    model: Option<String>,
}

#[derive(Serialize)]
struct Models {
    models: Vec<Entry>,
    #[serde(skip)]
    is_detailed: bool,
}

#[derive(Serialize)]
struct Entry {
    name: &'static str,
    summary: &'static str,
    n_parameters: usize,
    optimizer: &'static str,
    learning_rate: f64,
    options: Vec<OptionEntry>,
}

#[derive(Serialize)]
struct OptionEntry {
    name: &'static str,
    default: String,
    help: &'static str,
}

impl Flags {
    pub(super) fn run(&self, out: &mut Output) -> Result<Answer> {
        let is_wanted = |model: &&ModelInfo| self.model.as_ref().is_none_or(|name| name == model.name);
        let models = MODELS.iter().filter(is_wanted).map(Entry::of).collect::<Result<_>>()?;
        out.report(&Models { models, is_detailed: self.model.is_some() })?;
        Ok(Answer::Yes)
    }
}

impl Entry {
    fn of(info: &ModelInfo) -> Result<Entry> {
        let option = |o: &remat::model::OptionInfo| OptionEntry {
            name: o.name,
            default: o.default_text(),
            help: o.help,
        };
        Ok(Entry {
            name: info.name,
            summary: info.summary,
            n_parameters: info.build(&Options::new())?.n_parameters(),
            optimizer: info.optimizer.name(),
            learning_rate: info.optimizer.learning_rate,
            options: info.options.iter().map(option).collect(),
        })
    }

    fn detailed(&self, paint: Paint) -> String {
        let heading = format!("{}: {}\n", paint.heading(self.name), self.summary);
        let about = facts([
            ("parameters", count(self.n_parameters)),
            ("optimizer", format!("{}, learning rate {}", self.optimizer, self.learning_rate)),
        ]);
        let rows =
            self.options.iter().map(|o| vec![format!("--{}", o.name), o.default.clone(), o.help.to_owned()]);
        let columns = [("option", Align::Left), ("default", Align::Right), ("meaning", Align::Left)];
        heading + &about + "\n" + &table(&columns, rows)
    }
}

impl Report for Models {
    const SCHEMA: &'static str = "remat.models/1";

    fn text(&self, paint: Paint) -> String {
        if self.is_detailed {
            return self.models.iter().map(|model| model.detailed(paint)).collect();
        }
        let row = |model: &Entry| {
            let options: Vec<String> =
                model.options.iter().map(|o| format!("--{} {}", o.name, o.default)).collect();
            vec![
                model.name.to_owned(),
                count(model.n_parameters),
                model.optimizer.to_owned(),
                model.summary.to_owned(),
                options.join(" "),
            ]
        };
        let columns = [
            ("model", Align::Left),
            ("parameters", Align::Right),
            ("optimizer", Align::Left),
            ("summary", Align::Left),
            ("options and defaults", Align::Left),
        ];
        table(&columns, self.models.iter().map(row))
    }
}

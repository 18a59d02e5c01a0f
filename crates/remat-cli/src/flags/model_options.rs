//! The options of all models as flags: one flag per option name that some model has.
//!
//! The table of models is the only place that lists them; a new option of a model is a new flag here. Which of them
//! the chosen model has, and in which range, is for the model to say.

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::error::Error;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use remat::model::{MODELS, Options};
use std::collections::BTreeMap;

/// Model options as typed.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct ModelOptions {
    /// Names and values, in the order of the flags.
    pub(crate) typed: Vec<(&'static str, String)>,
}

impl ModelOptions {
    /// The options in the form that models read.
    pub(crate) fn options(&self) -> Options {
        self.typed.iter().fold(Options::new(), |options, (name, value)| options.with(*name, value))
    }
}

/// Every option name with its help and the models that have it.
fn known() -> BTreeMap<&'static str, (&'static str, Vec<&'static str>)> {
    let mut known = BTreeMap::new();
    for model in MODELS {
        for option in model.options {
            known.entry(option.name).or_insert((option.help, Vec::new())).1.push(model.name);
        }
    }
    known
}

impl Args for ModelOptions {
    fn augment_args(command: Command) -> Command {
        let flag = |(name, (help, models)): (&'static str, (&str, Vec<&str>))| {
            let whose =
                if models.len() == MODELS.len() { "all models".to_owned() } else { models.join(", ") };
            Arg::new(name)
                .long(name)
                .value_name("N")
                .help(format!("{help} ({whose})"))
                .help_heading("Model options")
                // A negative number is a value out of range, not an unknown flag.
                .allow_negative_numbers(true)
        };
        command.args(known().into_iter().map(flag))
    }

    fn augment_args_for_update(command: Command) -> Command {
        ModelOptions::augment_args(command)
    }
}

impl FromArgMatches for ModelOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<ModelOptions, Error> {
        let value = |name: &'static str| Some((name, matches.get_one::<String>(name)?.clone()));
        Ok(ModelOptions { typed: known().into_keys().filter_map(value).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = ModelOptions::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Accepts the names of the models; help, completion and the nearest name come from the table.
pub(crate) fn model_parser() -> PossibleValuesParser {
    PossibleValuesParser::new(MODELS.iter().map(|model| PossibleValue::new(model.name).help(model.summary)))
}

//! `remat completions`: a script that teaches a shell our commands, flags, models and planners.

use crate::answer::Answer;
use crate::output::{Output, Paint, Report};
use anyhow::{Context as _, Result};
use clap::Args;
use clap_complete::Shell;
use serde::Serialize;

/// Prints a completion script for a shell.
#[derive(Debug, Args)]
pub(crate) struct Flags {
    /// The shell that will read the script.
    shell: Shell,
}

#[derive(Serialize)]
struct Completions {
    shell: String,
    script: String,
}

impl Flags {
    pub(super) fn run(&self, out: &mut Output, mut whole: clap::Command) -> Result<Answer> {
        // The generator panics when its writer fails, so it writes to memory, which does not.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut whole, "remat", &mut script);
        let script = String::from_utf8(script).context("the completion script is not UTF-8")?;
        out.report(&Completions { shell: self.shell.to_string(), script })?;
        Ok(Answer::Yes)
    }
}

impl Report for Completions {
    const SCHEMA: &'static str = "remat.completions/1";

    fn text(&self, _: Paint) -> String {
        self.script.clone()
    }
}

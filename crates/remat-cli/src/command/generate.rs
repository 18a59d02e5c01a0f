//! `remat generate`: text from a trained language model.

use crate::answer::Answer;
use crate::format::count;
use crate::output::{Output, Paint, Report, say};
use crate::progress::Progress;
use anyhow::{Result, bail, ensure};
use clap::Args;
use remat::inference::{Inference, Sampling};
use remat_plan::Bytes;
use serde::Serialize;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Continues a text with a language model that `remat train --checkpoint` trained.
#[derive(Debug, Args)]
pub(crate) struct Flags {
    /// The folder of the run, with its checkpoints.
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// What the text begins with.
    #[arg(long, value_name = "TEXT", default_value = "")]
    prompt: String,
    /// How many tokens to add.
    #[arg(long, value_name = "N", default_value_t = 200)]
    tokens: usize,
    /// Below 1 likely tokens become likelier, above 1 less so; 0 always takes the likeliest.
    #[arg(long, value_name = "X", default_value_t = 1.0, allow_negative_numbers = true)]
    temperature: f32,
    /// Consider only so many of the likeliest tokens; by default all.
    #[arg(long, value_name = "K")]
    top_k: Option<usize>,
    /// The same seed gives the same text.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

#[derive(Serialize)]
struct Generated {
    text: String,
    prompt: String,
    n_tokens: usize,
    /// All memory that the model used: weights, inputs and everything in between.
    peak_bytes: Bytes,
    seconds: f64,
}

impl Flags {
    pub(super) fn run(&self, out: &mut Output) -> Result<Answer> {
        ensure!(
            self.temperature.is_finite() && self.temperature >= 0.0,
            "--temperature must be a number of at least zero, got {}",
            self.temperature
        );
        if self.top_k == Some(0) {
            bail!("--top-k must be at least 1: with no token to choose from there is no text");
        }
        let mut model = load(&self.run)?;
        model.vocabulary()?;
        let sampling = Sampling {
            tokens: self.tokens,
            temperature: self.temperature,
            top_k: self.top_k,
            seed: self.seed,
        };
        let begin = Instant::now();
        // On a terminal the text itself shows the progress; a bar would be in its way.
        let is_shown = !out.is_json();
        let progress = (!is_shown || !std::io::stdout().is_terminal())
            .then(|| Progress::with_end("generating", self.tokens));
        let (mut bytes, mut n_printed, mut n_done) = (Vec::new(), 0, 0);
        let mut failed = Ok(());
        model.generate_with(&self.prompt, &sampling, |part| {
            bytes.extend_from_slice(part);
            if is_shown && failed.is_ok() {
                let end = whole_characters(&bytes, n_printed);
                failed = out.text_now(&String::from_utf8_lossy(&bytes[n_printed..end]));
                n_printed = end;
            }
            if let Some(progress) = &progress {
                progress.set(n_done, self.tokens);
            }
            n_done += 1;
        })?;
        failed?;
        drop(progress);
        if is_shown {
            out.text(&String::from_utf8_lossy(&bytes[n_printed..]))?;
            out.text("\n")?;
        }
        let generated = Generated {
            text: String::from_utf8_lossy(&bytes).into_owned(),
            prompt: self.prompt.clone(),
            n_tokens: self.tokens,
            peak_bytes: model.peak(),
            seconds: begin.elapsed().as_secs_f64(),
        };
        if out.is_json() {
            out.report(&generated)?;
        } else {
            say(generated.text(Paint::stderr()).trim_end());
        }
        Ok(Answer::Yes)
    }
}

/// The model of a run, with a warning for every newer checkpoint that is damaged.
pub(super) fn load(run: &Path) -> Result<Inference> {
    let model = Inference::load(run)?;
    for damaged in model.damaged_checkpoints() {
        say(format_args!("warning: skipping a damaged checkpoint: {damaged}"));
    }
    Ok(model)
}

/// Where the characters end that are complete: a token may be part of one. Bytes that begin no character are complete.
fn whole_characters(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    loop {
        match std::str::from_utf8(&bytes[at..]) {
            Ok(_) => return bytes.len(),
            Err(error) => match error.error_len() {
                Some(wrong) => at += error.valid_up_to() + wrong,
                None => return at + error.valid_up_to(),
            },
        }
    }
}

impl Report for Generated {
    const SCHEMA: &'static str = "remat.generate/1";

    /// The text was printed token by token; this is what else is known.
    fn text(&self, _: Paint) -> String {
        format!("{} tokens in {:.1} s, {} of memory\n", count(self.n_tokens), self.seconds, self.peak_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_printed_when_they_are_whole() {
        let euro = "a€".as_bytes();
        assert_eq!(whole_characters(&euro[..2], 0), 1);
        assert_eq!(whole_characters(&euro[..3], 0), 1);
        assert_eq!(whole_characters(euro, 1), 4);
        assert_eq!(whole_characters(b"a\xFFb\xE2", 0), 3);
    }
}

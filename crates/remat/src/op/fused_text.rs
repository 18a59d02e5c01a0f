//! The program of a fused node as one line of text: `batch_norm_apply eps=0.00001 x0 x1 x2 x3 x4; relu s0`.
//!
//! Steps are separated by `;`. A step is an op, its attributes and its operands: `x2` is the node's third input, `s0` the
//! result of the first step. What is printed parses back to an equal program.

use super::Op;
use super::fused::{Fused, FusedStep, Operand};
use serde_json::{Map, Number, Value};
use std::fmt::Write as _;

impl From<Fused> for String {
    fn from(program: Fused) -> String {
        let steps: Vec<String> = program.steps.iter().map(print).collect();
        steps.join("; ")
    }
}

fn print(step: &FusedStep) -> String {
    let mut text = step.op.name().to_owned();
    if let Value::Object(attributes) = short(&step.op) {
        for (name, value) in attributes {
            let _ = write!(text, " {name}={value}");
        }
    }
    for operand in &step.x {
        let _ = match *operand {
            Operand::Input(i) => write!(text, " x{i}"),
            Operand::Step(step) => write!(text, " s{step}"),
        };
    }
    text
}

/// The attributes, with numbers as short as a 32-bit float needs them where that gives the same op.
fn short(op: &Op) -> Value {
    let exact = op.attributes();
    let mut shorter = exact.clone();
    for value in shorter.as_object_mut().into_iter().flat_map(Map::values_mut) {
        let float = value.as_f64().filter(|_| value.is_f64()).map(|number| (number as f32).to_string());
        if let Some(number) = float.and_then(|text| text.parse().ok()).and_then(Number::from_f64) {
            *value = Value::Number(number);
        }
    }
    if super::read(op.name(), shorter.clone()).is_ok_and(|same| same == *op) { shorter } else { exact }
}

impl TryFrom<String> for Fused {
    type Error = String;

    fn try_from(text: String) -> Result<Fused, String> {
        let mut rest = text.as_str();
        let mut steps = Vec::new();
        while !rest.is_empty() || steps.is_empty() {
            steps.push(step(&mut rest)?);
        }
        Ok(Fused { steps })
    }
}

/// Takes one step and the semicolon behind it.
fn step(rest: &mut &str) -> Result<FusedStep, String> {
    let name = word(rest);
    let (mut attributes, mut x) = (Map::new(), Vec::new());
    loop {
        *rest = rest.trim_start();
        if rest.is_empty() {
            break;
        }
        if let Some(next) = rest.strip_prefix(';') {
            *rest = next.trim_start();
            if rest.is_empty() {
                return Err("a step is missing after the last `;`".to_owned());
            }
            break;
        }
        let word = word(rest);
        if let Some(next) = rest.strip_prefix('=') {
            let mut values = serde_json::Deserializer::from_str(next).into_iter::<Value>();
            let value = values.next().and_then(Result::ok);
            attributes
                .insert(word.to_owned(), value.ok_or_else(|| format!("{name}: `{word}=` needs a value"))?);
            *rest = &next[values.byte_offset()..];
        } else {
            x.push(operand(word).ok_or_else(|| format!("{name}: `{word}` is neither an input nor a step"))?);
        }
    }
    Ok(FusedStep { op: super::read(name, Value::Object(attributes))?, x })
}

/// Takes what stands before the next separator.
fn word<'a>(rest: &mut &'a str) -> &'a str {
    let end = rest.find([' ', ';', '=']).unwrap_or(rest.len());
    // A separator alone is a word that means nothing; taking it keeps the reader moving.
    let end = end.max(rest.chars().next().map_or(0, char::len_utf8));
    let (word, next) = rest.split_at(end);
    *rest = next;
    word
}

fn operand(word: &str) -> Option<Operand> {
    let make: fn(usize) -> Operand = match word.chars().next()? {
        'x' => Operand::Input,
        's' => Operand::Step,
        _ => return None,
    };
    word[1..].parse().ok().map(make)
}

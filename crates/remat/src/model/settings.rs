//! Model options: what can be set, what was typed, and what it means.
//!
//! In: [`Options`], names and values as typed. Out: [`Settings`], every option of the model's table with a value in
//! its range. Relations between options (heads divide the width) are the models' own checks.

use crate::error::{Error, Result};

/// One option of a model.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct OptionInfo {
    /// As typed.
    pub name: &'static str,
    /// Range and default.
    pub kind: OptionKind,
    /// One line for lists.
    pub help: &'static str,
}

/// Range and default of an option.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum OptionKind {
    /// A whole number in `1..=max`.
    Count {
        /// When not given.
        default: usize,
        /// The largest allowed.
        max: usize,
    },
    /// A number in `[0, 1)`.
    Fraction {
        /// When not given.
        default: f32,
    },
}

/// Labels and token ids are `i32`, and products of a few extents below it stay far from overflow.
const MAX_EXTENT: usize = i32::MAX as usize;
/// Far beyond any network that trains, and small enough that the graph itself stays small.
const MAX_LAYERS: usize = 4096;

impl OptionInfo {
    /// An extent of tensors: batch, image, width.
    pub(super) const fn extent(name: &'static str, default: usize, help: &'static str) -> OptionInfo {
        OptionInfo { name, kind: OptionKind::Count { default, max: MAX_EXTENT }, help }
    }

    /// A number of layers.
    pub(super) const fn layers(name: &'static str, default: usize, help: &'static str) -> OptionInfo {
        OptionInfo { name, kind: OptionKind::Count { default, max: MAX_LAYERS }, help }
    }

    /// A probability.
    pub(super) const fn fraction(name: &'static str, default: f32, help: &'static str) -> OptionInfo {
        OptionInfo { name, kind: OptionKind::Fraction { default }, help }
    }

    /// The default as printed.
    pub fn default_text(&self) -> String {
        match self.kind {
            OptionKind::Count { default, .. } => default.to_string(),
            OptionKind::Fraction { default } => default.to_string(),
        }
    }
}

/// Options as typed; the last value of a name counts.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Options {
    typed: Vec<(String, String)>,
}

impl Options {
    /// Nothing typed: all defaults.
    pub fn new() -> Options {
        Options::default()
    }

    /// Adds an option.
    pub fn set(&mut self, name: impl Into<String>, value: impl ToString) {
        self.typed.push((name.into(), value.to_string()));
    }

    /// The same with one more option.
    pub fn with(mut self, name: impl Into<String>, value: impl ToString) -> Options {
        self.set(name, value);
        self
    }
}

/// No options: all defaults.
impl From<()> for Options {
    fn from((): ()) -> Options {
        Options::new()
    }
}

impl<V: ToString, const N: usize> From<[(&str, V); N]> for Options {
    fn from(typed: [(&str, V); N]) -> Options {
        Options::from(&typed)
    }
}

impl<V: ToString, const N: usize> From<&[(&str, V); N]> for Options {
    fn from(typed: &[(&str, V); N]) -> Options {
        typed.iter().fold(Options::new(), |all, (name, value)| all.with(*name, value.to_string()))
    }
}

/// Checked options of one model: every option of its table has a value.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    model: &'static str,
    values: Vec<(&'static str, Number)>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Number {
    Count(usize),
    Fraction(f32),
}

impl std::fmt::Display for Settings {
    /// The model with all its options, such as `mlp(batch=8,width=64)`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let options = self.values.iter().map(|(name, number)| match number {
            Number::Count(n) => format!("{name}={n}"),
            Number::Fraction(p) => format!("{name}={p}"),
        });
        write!(f, "{}({})", self.model, options.collect::<Vec<_>>().join(","))
    }
}

impl Settings {
    /// Checks what was typed against a model's table.
    pub fn check(model: &'static str, table: &[OptionInfo], options: &Options) -> Result<Settings> {
        let default = |info: &OptionInfo| match info.kind {
            OptionKind::Count { default, .. } => (info.name, Number::Count(default)),
            OptionKind::Fraction { default } => (info.name, Number::Fraction(default)),
        };
        let mut settings = Settings { model, values: table.iter().map(default).collect() };
        for (name, text) in &options.typed {
            let position = table.iter().position(|info| info.name == name).ok_or_else(|| {
                let known = table.iter().map(|info| info.name).collect::<Vec<_>>().join(", ");
                settings.error(name, format!("does not exist; there are {known}"))
            })?;
            settings.values[position].1 = settings.parse(&table[position], text)?;
        }
        Ok(settings)
    }

    fn parse(&self, info: &OptionInfo, text: &str) -> Result<Number> {
        match info.kind {
            OptionKind::Count { max, .. } => {
                match text.parse::<usize>() {
                    Ok(n) if (1..=max).contains(&n) => Ok(Number::Count(n)),
                    _ => Err(self
                        .error(info.name, format!("must be a whole number from 1 to {max}, got `{text}`"))),
                }
            }
            OptionKind::Fraction { .. } => match text.parse::<f32>() {
                Ok(p) if (0.0..1.0).contains(&p) => Ok(Number::Fraction(p)),
                _ => Err(self.error(info.name, format!("must be at least 0 and below 1, got `{text}`"))),
            },
        }
    }

    /// The model these are options of.
    pub fn model(&self) -> &'static str {
        self.model
    }

    /// A whole number. The model's table must have it as such.
    pub fn count(&self, name: &str) -> usize {
        match self.number(name) {
            Number::Count(n) => n,
            Number::Fraction(_) => unreachable!("{}: option {name} is not a count", self.model),
        }
    }

    /// A number in `[0, 1)`. The model's table must have it as such.
    pub fn fraction(&self, name: &str) -> f32 {
        match self.number(name) {
            Number::Fraction(p) => p,
            Number::Count(_) => unreachable!("{}: option {name} is not a fraction", self.model),
        }
    }

    fn number(&self, name: &str) -> Number {
        self.values.iter().find(|v| v.0 == name).expect("a model asks only for options of its own table").1
    }

    /// An error about one option.
    pub(super) fn error(&self, option: &str, message: String) -> Error {
        Error::Option { model: self.model.to_owned(), option: option.to_owned(), message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[OptionInfo] = &[
        OptionInfo::extent("batch", 8, ""),
        OptionInfo::layers("layers", 2, ""),
        OptionInfo::fraction("dropout", 0.1, ""),
    ];

    fn message(name: &str, value: &str) -> String {
        Settings::check("m", TABLE, &Options::new().with(name, value)).unwrap_err().to_string()
    }

    #[test]
    fn defaults_stand_until_something_is_typed_and_the_last_word_counts() {
        let typed = Options::new().with("batch", 3).with("dropout", "0").with("batch", 5);
        let settings = Settings::check("m", TABLE, &typed).unwrap();
        assert_eq!(
            (settings.count("batch"), settings.count("layers"), settings.fraction("dropout")),
            (5, 2, 0.0)
        );
    }

    #[test]
    fn every_bad_option_is_named_with_what_would_be_right() {
        let whole = "must be a whole number from 1 to 2147483647, got";
        assert_eq!(message("bach", "1"), "m: option `bach` does not exist; there are batch, layers, dropout");
        for text in ["0", "-1", "1.5", "", "many", "99999999999999999999", "2147483648"] {
            assert_eq!(message("batch", text), format!("m: option `batch` {whole} `{text}`"));
        }
        assert_eq!(
            message("layers", "4097"),
            "m: option `layers` must be a whole number from 1 to 4096, got `4097`"
        );
        for text in ["1", "-0.1", "NaN", "inf", "half"] {
            assert_eq!(
                message("dropout", text),
                format!("m: option `dropout` must be at least 0 and below 1, got `{text}`")
            );
        }
    }
}

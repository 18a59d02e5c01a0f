//! What a store is to be, as plain data.

use remat_plan::Way;
use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Where a store keeps its bytes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// In a scratch file in this directory.
    File(PathBuf),
    /// In memory that the budget does not count, as beside an accelerator.
    Host,
}

impl FromStr for Kind {
    type Err = Infallible;

    /// `host`, or a directory; write `./host` for a directory of that name.
    fn from_str(text: &str) -> Result<Kind, Infallible> {
        Ok(if text == "host" { Kind::Host } else { Kind::File(PathBuf::from(text)) })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::File(directory) => write!(f, "{}", directory.display()),
            Kind::Host => f.write_str("host"),
        }
    }
}

/// A store that a step may use.
#[derive(Clone, PartialEq, Debug)]
pub struct Setup {
    /// Where it keeps its bytes.
    pub kind: Kind,
    /// What goes wrong with it, for tests.
    pub trouble: Trouble,
}

impl Setup {
    /// A store without trouble.
    pub fn new(kind: Kind) -> Setup {
        Setup { kind, trouble: Trouble::default() }
    }
}

/// What a test lets go wrong. Nothing by default.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Trouble {
    /// Every copy is delayed by up to this long, by chance.
    pub delay: Duration,
    /// Decides by chance.
    pub seed: u64,
    /// The copy with this number, counted from 1 in each direction, and all later ones fail.
    pub failing: Option<u64>,
    /// The file system is said to have no direct I/O.
    pub no_direct_io: bool,
}

impl Trouble {
    /// The trouble of one direction: other delays.
    pub(super) fn of_channel(self, way: Way) -> Trouble {
        Trouble { seed: self.seed.wrapping_mul(2) + u64::from(way == Way::In), ..self }
    }

    /// How long the copy with this number waits before it begins.
    pub(super) fn delay_of(&self, number: u64) -> Duration {
        // SplitMix64: neighbours have nothing in common.
        let mut x = self.seed.wrapping_add(number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        self.delay.mul_f64(((x ^ (x >> 31)) % 1024) as f64 / 1023.0)
    }

    /// Whether the copy with this number fails.
    pub(super) fn fails(&self, number: u64) -> bool {
        self.failing.is_some_and(|first| number >= first)
    }
}

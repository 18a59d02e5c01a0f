//! The text forms of problems and plans: short, made for reading, and exact (docs/formats.md).

mod plan;
mod problem;
mod stores;

//! Fuzzes whole training steps: see `src/targets.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| remat_fuzz::step(bytes));

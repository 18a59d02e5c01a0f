//! Every kernel gives the same bits with every instruction set, for tails of every length.
//!
//! `kernels.rs` is the table: each kernel as a function of one length, which is the length that its vectors run along.

mod kernels;

use kernels::{KERNELS, Kernel};
use remat_kernels::isa::{self, Isa};
use std::path::Path;

/// From nothing but a tail to blocks of 64 with every tail, and around the ends of longer blocks.
fn lengths() -> Vec<usize> {
    if cfg!(miri) {
        return vec![9];
    }
    (1..=130).chain([255, 256, 257, 319, 320, 321, 511, 512, 513]).collect()
}

fn bits(kernel: &Kernel, isa: Isa, len: usize) -> Vec<u32> {
    isa::select(isa);
    (kernel.run)(len).iter().map(|x| x.to_bits()).collect()
}

#[test]
fn all_sets_give_the_same_bits() {
    for kernel in KERNELS {
        println!("{}", kernel.name);
        for len in lengths().into_iter().filter(|&len| len <= kernel.longest) {
            let want = bits(kernel, Isa::Portable, len);
            assert!(!want.is_empty(), "{} has no output for length {len}", kernel.name);
            for isa in Isa::available() {
                let got = bits(kernel, isa, len);
                let differs = want.iter().zip(&got).position(|(want, got)| want != got);
                assert!(
                    differs.is_none() && want.len() == got.len(),
                    "{} of length {len}: element {differs:?} differs between portable and {}",
                    kernel.name,
                    isa.name()
                );
            }
        }
    }
    println!("{} kernels, {} instruction sets", KERNELS.len(), Isa::available().count());
}

/// Functions of the kernel modules that compute nothing of a tensor.
const OTHERS: [&str; 9] =
    ["workspace", "threshold", "factor", "check_labels", "check_ids", "part", "keep", "new", "packed"];

/// A kernel that is missing in the table would be missing in the test.
#[test]
#[cfg_attr(miri, ignore = "reads files")]
fn the_table_has_every_kernel() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let table = include_str!("kernels.rs");
    let mut n_kernels = 0;
    for folder in
        ["attention", "conv", "copy", "losses", "matrix", "norm", "pointwise", "pool", "product", "update"]
    {
        for entry in std::fs::read_dir(source.join(folder)).expect("a folder of kernels") {
            let path = entry.expect("readable").path();
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            let module = path.file_stem().expect("a name").to_string_lossy().into_owned();
            for line in text.lines().map(str::trim_start) {
                let Some(rest) = line.strip_prefix("pub fn ") else { continue };
                let name = rest.split(['(', '<', '[']).next().expect("a name");
                if OTHERS.contains(&name) || name.ends_with("_workspace") || rest.contains("self") {
                    continue;
                }
                let called = [format!("{name}("), format!("{module}::{name}"), format!("::{name},")];
                assert!(
                    called.iter().any(|call| table.contains(call)),
                    "{name} of {} is not in kernels.rs",
                    path.display()
                );
                n_kernels += 1;
            }
        }
    }
    assert!(n_kernels > 50, "only {n_kernels} kernels were found");
}

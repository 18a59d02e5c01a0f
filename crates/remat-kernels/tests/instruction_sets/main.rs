//! Every kernel gives the same bits with every instruction set, for tails of every length, and on every machine those that
//! are kept in `bits.txt`.
//!
//! `UPDATE_EXPECT=1 cargo test --release -p remat-kernels --test instruction_sets` writes that file. Whoever changes it
//! raises `remat_kernels::NUMERICS`, because checkpoints tell versions apart by that number.
//!
//! `REMAT_KERNELS=conv,attention` runs those whose names contain one of these, for tools that are slow.
//!
//! `kernels.rs` is the table: each kernel as a function of one length, which is the length that its vectors run along.

mod kernels;

use kernels::{KERNELS, Kernel};
use remat_kernels::gemm::{Mat, MatMut, Write, gemm_serial};
use remat_kernels::isa::{self, Isa};
use std::path::Path;

/// From nothing but a tail to blocks of 64 with every tail, and around the ends of longer blocks.
fn lengths() -> Vec<usize> {
    if cfg!(miri) {
        return vec![9];
    }
    (1..=130).chain([255, 256, 257, 319, 320, 321, 511, 512, 513]).collect()
}

/// What a not-a-number is made of differs between processors.
fn bits(kernel: &Kernel, isa: Isa, len: usize) -> Vec<u32> {
    isa::select(isa);
    (kernel.run)(len).iter().map(|x| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() }).collect()
}

#[test]
fn all_sets_give_the_same_bits() {
    let mut page = format!("numerics {}\n", remat_kernels::NUMERICS);
    let some = std::env::var("REMAT_KERNELS").ok();
    let is_wanted =
        |kernel: &Kernel| some.iter().all(|some| some.split(',').any(|name| kernel.name.contains(name)));
    for kernel in KERNELS.iter().filter(|kernel| is_wanted(kernel)) {
        println!("{}", kernel.name);
        let mut hash = 0u64;
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
            hash = want.iter().fold(hash, |hash, &bits| {
                (hash.rotate_left(23) ^ u64::from(bits)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
            });
        }
        page += &format!("{hash:016x} {}\n", kernel.name);
    }
    if cfg!(miri) || some.is_some() {
        return;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/instruction_sets/bits.txt");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &page).expect("the fixture is writable");
    }
    let kept = std::fs::read_to_string(&path).expect("the fixture");
    for (now, kept) in page.lines().zip(kept.lines()) {
        assert_eq!(now, kept, "a kernel has other bits on this machine, or since its last version");
    }
    assert_eq!(page.len(), kept.len(), "kernels were added or removed");
}

/// A left operand whose rows are so far apart that they are copied before pointers to them are taken: small enough for
/// Miri, which sees a pointer that a later reference to the same memory has ended.
#[test]
fn rows_far_apart() {
    let (rows, depth, stride) = (2, 3, 600);
    let (a, b) = (vec![0.5; rows * stride], vec![2.0; depth]);
    for isa in Isa::available() {
        isa::select(isa);
        let mut c = [0.0; 2];
        let left = Mat::strided(&a, rows, depth, stride, 1);
        gemm_serial(Write::Overwrite, 1.0, left, Mat::new(&b, depth, 1), MatMut::new(&mut c, rows, 1));
        assert_eq!(c, [3.0; 2]);
    }
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

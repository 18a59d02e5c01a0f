//! Licences and sources of all dependencies, against deny.toml.
//!
//! In: `cargo metadata` and deny.toml. Out: every package whose licence expression the allowed licences do not satisfy,
//! that does not come from crates.io, or that needs a newer Rust than we promise to build with. cargo-deny reads the same
//! file and checks more; `.github/workflows/test.yml` runs it. It is not part of the test command, because a fresh
//! machine would have to compile it (not done after 15 minutes on two busy cores), and its wheel on PyPI is too old to
//! know all of our licences. The crate `spdx`, which cargo-deny uses as well, reads the expressions.

use crate::repository::cargo;
use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use spdx::{Expression, Licensee, ParseMode};
use std::path::Path;

#[derive(Deserialize)]
struct Rules {
    licenses: Licenses,
}

#[derive(Deserialize)]
struct Licenses {
    allow: Vec<String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    /// `None` for ours.
    source: Option<String>,
    license: Option<String>,
    rust_version: Option<String>,
}

/// All faults of the dependency tree.
pub(super) fn check(root: &Path) -> Result<Vec<String>> {
    let rules = std::fs::read_to_string(root.join("deny.toml")).context("reading deny.toml")?;
    let allowed = allowed_licences(&rules).context("reading deny.toml")?;
    let output = cargo(root, &["metadata", "--format-version", "1", "--locked"])
        .output()
        .context("running cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Metadata = serde_json::from_slice(&output.stdout).context("reading cargo metadata")?;
    let packages = &metadata.packages;
    let ours = packages.iter().filter(|package| package.source.is_none());
    let promised =
        ours.filter_map(|package| package.rust_version.as_deref()).max_by_key(|text| version(text));
    let promised = promised.context("our packages state no rust-version")?;
    let mut faults: Vec<String> = packages.iter().filter_map(|package| fault(package, &allowed)).collect();
    faults.extend(packages.iter().filter_map(|package| newer_rust(package, promised)));
    Ok(faults)
}

/// `1.90` and `1.90.0` are the same.
fn version(text: &str) -> Vec<u32> {
    let mut parts: Vec<u32> = text.split('.').map(|part| part.parse().unwrap_or(0)).collect();
    parts.resize(3, 0);
    parts
}

fn newer_rust(Package { name, version: own, rust_version, .. }: &Package, promised: &str) -> Option<String> {
    let needed = rust_version.as_deref().filter(|needed| version(needed) > version(promised))?;
    Some(format!("{name} {own} needs Rust {needed}; rust-version in Cargo.toml promises {promised}"))
}

fn allowed_licences(rules: &str) -> Result<Vec<Licensee>> {
    let rules: Rules = toml::from_str(rules)?;
    rules.licenses.allow.iter().map(|name| Ok(Licensee::parse(name)?)).collect()
}

fn fault(package: &Package, allowed: &[Licensee]) -> Option<String> {
    let name = format!("{} {}", package.name, package.version);
    let source = package.source.as_deref()?;
    // How cargo names the registry that everybody uses, whatever host serves it.
    if !source.starts_with("registry+") || !source.ends_with("/crates.io-index") {
        return Some(format!("{name} comes from {source}, not from crates.io"));
    }
    let Some(licence) = package.license.as_deref() else {
        return Some(format!("{name} states no licence"));
    };
    // Some old packages write `/` where they mean `OR`.
    let mode = ParseMode { allow_slash_as_or_operator: true, ..ParseMode::STRICT };
    let Ok(expression) = Expression::parse_mode(licence, mode) else {
        return Some(format!("{name} has the licence `{licence}`, which is not an SPDX expression"));
    };
    let is_allowed = expression.evaluate(|wanted| allowed.iter().any(|licence| licence.satisfies(wanted)));
    (!is_allowed).then(|| format!("{name} has the licence `{licence}`, which deny.toml does not allow"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CRATES_IO: &str = "registry+https://example.org/crates.io-index";

    fn found(source: &str, license: Option<&str>) -> Option<String> {
        let allowed = allowed_licences("[licenses]\nallow = [\"MIT\", \"Unicode-3.0\"]\n[bans]\n").unwrap();
        let (name, version, rust_version) = ("x".to_owned(), "1.0.0".to_owned(), None);
        let (source, license) = (Some(source.to_owned()), license.map(str::to_owned));
        fault(&Package { name, version, source, license, rust_version }, &allowed)
    }

    #[test]
    fn expressions_are_satisfied_by_any_choice_they_offer() {
        for licence in [
            "MIT",
            "MIT/Apache-2.0",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR MIT",
        ] {
            assert_eq!(found(CRATES_IO, Some(licence)), None, "{licence}");
        }
        for licence in ["Apache-2.0 OR BSL-1.0", "MIT AND Apache-2.0", "GPL-3.0-only OR MIT AND Apache-2.0"] {
            assert!(found(CRATES_IO, Some(licence)).unwrap().contains("does not allow"), "{licence}");
        }
        for licence in ["MIT OR", "(MIT", "MIT MIT", "", "no licence"] {
            assert!(found(CRATES_IO, Some(licence)).unwrap().contains("not an SPDX"), "{licence}");
        }
        assert!(found(CRATES_IO, None).unwrap().contains("states no licence"));
    }

    #[test]
    fn packages_from_elsewhere_are_named() {
        assert!(found("git+https://x", Some("MIT")).unwrap().contains("git+https://x"));
    }

    #[test]
    fn packages_that_need_a_newer_rust_are_named() {
        let package = |needed: &str| Package {
            name: "x".into(),
            version: "1.0.0".into(),
            source: None,
            license: None,
            rust_version: Some(needed.into()),
        };
        assert_eq!(newer_rust(&package("1.90.0"), "1.90"), None);
        assert_eq!(newer_rust(&package("1.9"), "1.90"), None);
        assert!(newer_rust(&package("1.91"), "1.90").unwrap().contains("needs Rust 1.91"));
    }

    #[test]
    fn rules_without_licences_or_with_an_unknown_one_are_refused() {
        assert!(allowed_licences("[bans]\n").is_err());
        assert!(allowed_licences("[licenses]\nallow = [\"MITT\"]\n").is_err());
    }
}

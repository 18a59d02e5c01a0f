//! What the feature `ilp` needs to be built: the solver HiGHS is C++ and its bindings are made by libclang.
//!
//! Compiling it takes longer than all other tests together, so it is done only when asked for.

use std::path::{Path, PathBuf};

/// Why it is not tested unless asked for.
pub(super) const LEFT_OUT: &str = "the C++ solver takes long to compile; --solver tests it";

/// Why the feature cannot be built here, if so.
pub(super) fn missing() -> Option<String> {
    let mut missing = Vec::new();
    if !["c++", "g++", "clang++"].iter().any(|name| is_program(name)) {
        missing.push("a C++ compiler");
    }
    if !is_program("cmake") {
        missing.push("cmake");
    }
    if !libclang_folders().iter().any(|folder| has_libclang(folder)) {
        missing.push("libclang");
    }
    (!missing.is_empty()).then(|| format!("the feature `ilp` needs {}", missing.join(", ")))
}

/// Whether a program of this name is found in PATH.
fn is_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

/// Where bindgen looks for the library on Linux and macOS, as far as it matters.
fn libclang_folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> =
        std::env::var_os("LIBCLANG_PATH").map(PathBuf::from).into_iter().collect();
    folders.extend(
        ["/usr/lib64", "/usr/local/lib", "/Library/Developer/CommandLineTools/usr/lib"].map(PathBuf::from),
    );
    for entry in std::fs::read_dir("/usr/lib").into_iter().flatten().flatten() {
        folders.push(entry.path());
        folders.push(entry.path().join("lib"));
    }
    folders
}

fn has_libclang(folder: &Path) -> bool {
    std::fs::read_dir(folder).into_iter().flatten().flatten().any(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        // libclang-14.so.1, libclang.so, libclang.dylib; but libclang-cpp is another library.
        name.strip_prefix("libclang").is_some_and(|rest| {
            rest.starts_with(".so") || rest == ".dylib" || (rest.starts_with("-1") && rest.contains(".so"))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_told_from_its_neighbours() {
        let folder = std::env::temp_dir().join(format!("xtask-libclang-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("libclang-cpp.so.14"), "").unwrap();
        assert!(!has_libclang(&folder));
        std::fs::write(folder.join("libclang-14.so.1"), "").unwrap();
        assert!(has_libclang(&folder));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

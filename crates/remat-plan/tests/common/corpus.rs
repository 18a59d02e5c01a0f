//! Replays a folder of text cases. Used by the tests of `remat-plan` and, by its path, of other crates.
//!
//! A case is a `.txt` file: first lines that say what it shows, then sections that begin with `--- ` and a name. Some
//! sections are input, some are the expected output; the test says which by answering them:
//!
//! ```text
//! An input that is listed twice is refused.
//! --- problem
//! ...
//! --- error
//! ...
//! ```
//!
//! `UPDATE_EXPECT=1 cargo test` writes what the test answered into the files. Read the difference before committing it.

use std::path::{Path, PathBuf};

/// One file.
pub(crate) struct Case {
    pub(crate) file: PathBuf,
    title: String,
    pub(crate) sections: Vec<Section>,
}

/// A part of a file. Its text ends with a line break, or is empty.
pub(crate) struct Section {
    pub(crate) name: String,
    pub(crate) text: String,
}

impl Case {
    fn read(file: PathBuf) -> Case {
        let text = std::fs::read_to_string(&file).expect("a case is a readable text file");
        let mut case = Case { file, title: String::new(), sections: Vec::new() };
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("--- ") {
                case.sections.push(Section { name: name.to_string(), text: String::new() });
                continue;
            }
            let part = case.sections.last_mut().map_or(&mut case.title, |section| &mut section.text);
            part.push_str(line);
            part.push('\n');
        }
        case
    }

    /// The text of the section with this name.
    pub(crate) fn section(&self, name: &str) -> &str {
        let found = self.sections.iter().find(|section| section.name == name);
        found.map_or_else(|| panic!("{}: there is no section `{name}`", self.file.display()), |s| &s.text)
    }

    fn print(&self) -> String {
        let sections = self.sections.iter().map(|section| format!("--- {}\n{}", section.name, section.text));
        self.title.clone() + &sections.collect::<String>()
    }
}

/// Answers every section of every case in the folder, and compares. `None` is the answer for an input. Returns the number
/// of cases.
pub(crate) fn replay(folder: &Path, answer: impl Fn(&Case, &Section) -> Option<String>) -> usize {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("the folder can be read").path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "txt"))
        .collect();
    files.sort();
    let is_update = std::env::var_os("UPDATE_EXPECT").is_some();
    let mut differences = Vec::new();
    for file in &files {
        let mut case = Case::read(file.clone());
        let answers: Vec<Option<String>> =
            case.sections.iter().map(|section| answer(&case, section)).collect();
        assert!(answers.iter().any(Option::is_some), "{}: nothing is expected", file.display());
        for (i, got) in answers.into_iter().enumerate() {
            let Some(mut got) = got else { continue };
            if !got.is_empty() && !got.ends_with('\n') {
                got.push('\n');
            }
            let Section { name, text } = &case.sections[i];
            if *text != got {
                differences.push(format!("{}: {name}\n# expected\n{text}# got\n{got}", file.display()));
                case.sections[i].text = got;
            }
        }
        if is_update {
            std::fs::write(file, case.print()).expect("the case can be written");
        }
    }
    assert!(
        is_update || differences.is_empty(),
        "{}\n{} answers differ; UPDATE_EXPECT=1 writes them into the files",
        differences.join("\n"),
        differences.len()
    );
    files.len()
}

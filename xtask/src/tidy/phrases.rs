//! Turns of phrase that no native speaker would write: they are gone and must not come back.

use super::File;

/// In lower case.
const PHRASES: &[&str] = &[
    "the way of the data",
    "who tried",
    "speeds of now",
    "a dear plan",
    "dearer",
    "dearest",
    "run the step in the mind",
    "is taken for as fast as the machine",
    "something else than",
    "at your choice",
    "a run that goes on",
    "goes on behind",
    "their meaning stands in",
];

/// Documents, comments and messages alike.
pub(super) fn check(files: &[File]) -> Vec<String> {
    let fault = |phrase, place| format!("{place}: \"{phrase}\": say it in plain English");
    PHRASES
        .iter()
        .flat_map(|phrase| {
            files.iter().flat_map(move |file| places(file, phrase)).map(move |p| fault(phrase, p))
        })
        .collect()
}

/// Where a phrase occurs; it may be broken over two lines.
fn places(file: &File, phrase: &str) -> Vec<String> {
    // This file is the list.
    if file.name.ends_with("tidy/phrases.rs") {
        return Vec::new();
    }
    let plain = |word: &str| word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
    let lines = file.text.lines().enumerate();
    let words =
        lines.flat_map(|(index, line)| line.split_whitespace().map(move |word| (index + 1, plain(word))));
    let words: Vec<(usize, String)> = words.filter(|(_, word)| !word.is_empty()).collect();
    let wanted: Vec<&str> = phrase.split(' ').collect();
    let windows = words.windows(wanted.len());
    let found =
        windows.filter(|window| window.iter().map(|(_, word)| word.as_str()).eq(wanted.iter().copied()));
    found.map(|window| format!("{}:{}", file.name, window[0].0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> File {
        File { name: "a.rs".into(), text: text.into() }
    }

    #[test]
    fn a_phrase_is_found_in_any_dress() {
        let found = |text: &str| places(&file(text), "speeds of now");
        assert_eq!(found("\nthe *speeds of now*: measured"), ["a.rs:2"]);
        assert_eq!(found("//! Speeds\n//! of now."), ["a.rs:1"]);
        assert_eq!(found("speeds of nowhere"), [""; 0]);
        assert_eq!(found("speeds that count of now"), [""; 0]);
    }

    #[test]
    fn every_phrase_is_named_with_its_place() {
        for phrase in PHRASES {
            let faults = check(&[file("fine"), file(&format!("first\nand {phrase}."))]);
            assert!(
                faults.iter().any(|fault| fault.starts_with(&format!("a.rs:2: \"{phrase}\""))),
                "{faults:?}"
            );
        }
        assert_eq!(check(&[file("plain English")]), [""; 0]);
    }
}

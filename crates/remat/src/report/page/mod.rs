//! The report page: one HTML file with its style, its scripts and its data inside. It needs no network.

use super::palette;
use remat_plan::Shown;
use serde_json::{Value, json};

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");

/// The parts of the script, in the order in which they use each other; the last one runs the page.
const SCRIPTS: [&str; 8] = [
    include_str!("script/base.js"),
    include_str!("script/table.js"),
    include_str!("script/chart.js"),
    include_str!("script/timeline.js"),
    include_str!("script/copies.js"),
    include_str!("script/results.js"),
    include_str!("script/training.js"),
    include_str!("script/start.js"),
];

/// A JSON document that a command wrote, with where it was found.
#[derive(Clone, PartialEq, Debug)]
pub struct Document {
    /// For people.
    pub file: String,
    /// As it was written.
    pub document: Value,
}

impl Document {
    /// A document made here and now.
    pub fn of(name: &str, schema: &str, content: &impl serde::Serialize) -> Document {
        let mut document = serde_json::to_value(content).expect("documents are plain data with string keys");
        document["schema"] = schema.into();
        Document { file: name.to_owned(), document }
    }
}

/// The page that shows these documents.
pub fn page(documents: &[Document]) -> String {
    let list: Vec<Value> =
        documents.iter().map(|d| json!({"file": d.file, "document": d.document})).collect();
    let mut data = json!({"palette": palette::document(), "documents": list});
    make_printable(&mut data);
    let data = data.to_string();
    // In JSON a `<` can be inside strings only. Without it, no name can end the script element or begin a comment.
    let data = data.replace('<', "\\u003c");
    // The data goes in last: a name that looks like a placeholder stays a name.
    PAGE.replace("/*STYLE*/", STYLE).replace("/*SCRIPT*/", &SCRIPTS.join("\n")).replace("/*DATA*/", &data)
}

/// Escapes what would reorder or hide text on the page. Keys are names of fields, which only our own documents show.
fn make_printable(value: &mut Value) {
    match value {
        Value::String(text) => Shown::make(text),
        Value::Array(list) => list.iter_mut().for_each(make_printable),
        Value::Object(fields) => fields.values_mut().for_each(make_printable),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_break_out_of_the_data() {
        let name = "</script><script>alert(1)</script><!-- /*SCRIPT*/ \u{1b}[31m \u{202e}";
        let evil = json!({"schema": "remat.plan/1", "problem": name});
        let page = page(&[Document { file: name.to_owned(), document: evil }]);
        let start = page.find("id=\"data\">").unwrap() + "id=\"data\">".len();
        let end = start + page[start..].find("</script>").unwrap();
        let data: Value = serde_json::from_str(&page[start..end]).unwrap();
        let shown = name.replace('\u{1b}', r"\u{1b}").replace('\u{202e}', r"\u{202e}");
        let document = json!({"schema": "remat.plan/1", "problem": shown});
        assert_eq!(data["documents"][0], json!({"file": shown, "document": document}));
        assert_eq!(page.matches("<script").count(), 2, "the data and the script");
        assert_eq!(page.matches("http://").count(), 1, "only the name of SVG");
    }

    #[test]
    fn the_page_has_the_colours_of_the_pictures_and_no_others_for_data() {
        let page = page(&[]);
        assert!(page.contains(&serde_json::to_string(&palette::document()).unwrap()));
        let scripts = SCRIPTS.join("\n");
        for colour in palette::KINDS.iter().map(|(_, colour)| *colour).chain(palette::SERIES) {
            assert!(!scripts.contains(colour) && !STYLE.contains(colour), "{colour} is written twice");
        }
    }
}

//! The report page: one HTML file with its style, its script and its data inside. It needs no network.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// A JSON document that a command wrote, with where it was found.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Document {
    /// For people.
    pub(crate) file: String,
    /// As it was written.
    pub(crate) document: Value,
}

/// The page that shows these documents.
pub(crate) fn page(documents: &[Document]) -> Result<String> {
    let list: Vec<Value> =
        documents.iter().map(|d| json!({"file": d.file, "document": d.document})).collect();
    let data = serde_json::to_string(&list).context("writing the data of the page")?;
    // Inside a script element only `</` could end it too early; in JSON that can stand only inside a string.
    let data = data.replace("</", "<\\/").replace("<!--", "<\\u0021--");
    Ok(PAGE.replace("/*STYLE*/", STYLE).replace("/*SCRIPT*/", SCRIPT).replace("/*DATA*/", &data))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_break_out_of_the_data() {
        let evil = json!({"schema": "remat.plan/1", "problem": "</script><script>alert(1)</script><!--"});
        let page = page(&[Document { file: "a".to_owned(), document: evil.clone() }]).unwrap();
        let start = page.find("id=\"data\">").unwrap() + "id=\"data\">".len();
        let end = start + page[start..].find("</script>").unwrap();
        let data: Value = serde_json::from_str(&page[start..end]).unwrap();
        assert_eq!(data[0]["document"], evil);
        assert!(!page.contains("http://") || page.matches("http://").count() == 1, "only the name of SVG");
    }
}

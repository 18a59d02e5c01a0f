//! What the folder of a run holds beside its checkpoints: all that is needed to use the model without the program that
//! trained it.

use super::{ImageScale, Vocabulary};
use crate::error::{Error, Result};
use crate::files;
use crate::graph::Graph;
use crate::ids::{Id as _, ValueId};
use serde::{Deserialize, Serialize};
use std::path::Path;

const FILE: &str = "run.json";
const FORMAT: &str = "remat.run/1";

/// What a model was trained on, as far as using it needs to know.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum About {
    /// Nothing is known: the inputs are numbers.
    Numbers,
    /// Text, cut into these tokens.
    Text(Vocabulary),
    /// Images of these classes.
    Images {
        /// Names in the order of their numbers.
        classes: Vec<String>,
        /// How pixels become inputs.
        scale: ImageScale,
    },
}

/// The model and the data of a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RunFolder {
    format: String,
    /// The forward graph as text. It is read when it is needed: with ops of your own it cannot be.
    graph: String,
    /// The number of the value that the model predicts, where the model says so itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    prediction: Option<usize>,
    data: About,
}

impl RunFolder {
    /// The description of a run.
    pub fn of(forward: &Graph, prediction: Option<ValueId>, data: About) -> RunFolder {
        let prediction = prediction.map(|value| value.index());
        RunFolder { format: FORMAT.to_owned(), graph: forward.to_text(), prediction, data }
    }

    /// What the model predicts, where it says so itself.
    pub fn prediction(&self) -> Option<ValueId> {
        self.prediction.map(ValueId::new)
    }

    /// What the model was trained on.
    pub fn about(&self) -> &About {
        &self.data
    }

    /// The forward graph, where all of its ops are known to this crate.
    pub fn forward(&self) -> Result<Graph> {
        Graph::from_text(&self.graph)
    }

    /// Writes the file of a run into its folder.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let path = folder.join(FILE);
        let bug = |e: serde_json::Error| Error::Bug { stage: "run folder", faults: vec![e.to_string()] };
        let text = serde_json::to_string(self).map_err(bug)?;
        files::replace_bytes(&path, text).map_err(Error::io(format!("write {}", path.display())))
    }

    /// Reads the file of a run; `None` when the folder has none.
    pub fn read(folder: &Path) -> Result<Option<RunFolder>> {
        let path = folder.join(FILE);
        let text = match files::read_regular_text(&path, files::DESCRIPTION_LIMIT) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io(format!("read {}", path.display()))(error)),
        };
        let wrong = |message: String| Error::Checkpoint { place: path.display().to_string(), message };
        let found: RunFolder =
            serde_json::from_str(&text).map_err(|e| wrong(format!("is not a description of a run: {e}")))?;
        if found.prediction.is_some_and(|value| u32::try_from(value).is_err()) {
            return Err(wrong("names a prediction that is no value".to_owned()));
        }
        if found.format != FORMAT {
            return Err(wrong(format!("has the format `{}`, not `{FORMAT}`", found.format)));
        }
        Ok(Some(found))
    }
}

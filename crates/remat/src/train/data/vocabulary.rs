//! Text to tokens and back.

use super::byte_pairs::BytePairs;
use serde::{Deserialize, Serialize};

/// The tokens of a language model.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Vocabulary {
    /// Each byte is a token.
    Bytes,
    /// Frequent pairs are tokens of their own.
    BytePairs(BytePairs),
}

impl Vocabulary {
    /// Number of tokens.
    pub fn len(&self) -> usize {
        match self {
            Vocabulary::Bytes => 256,
            Vocabulary::BytePairs(pairs) => pairs.vocabulary(),
        }
    }

    /// Never: bytes are always tokens.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The tokens of a text.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        match self {
            Vocabulary::Bytes => text.bytes().map(u32::from).collect(),
            Vocabulary::BytePairs(pairs) => {
                let mut tokens = Vec::new();
                pairs.encode(text, |token| tokens.push(token));
                tokens
            }
        }
    }

    /// The bytes of one token; none for a number that is no token, such as the mask of a masked model.
    pub fn bytes(&self, token: u32) -> Vec<u8> {
        match self {
            Vocabulary::Bytes => u8::try_from(token).into_iter().collect(),
            Vocabulary::BytePairs(pairs) => pairs.bytes(token),
        }
    }

    /// The text of tokens; bytes that are not UTF-8 become replacement characters.
    pub fn decode(&self, tokens: &[u32]) -> String {
        let bytes: Vec<u8> = tokens.iter().flat_map(|&token| self.bytes(token)).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

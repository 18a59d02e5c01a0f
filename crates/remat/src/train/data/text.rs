//! Text as batches: windows of tokens, with what comes next or what was hidden as labels.
//!
//! In: a corpus and a tokenizer. Out: [`Batches`] whose windows lie anywhere in the training part (drawn again for every
//! batch), or one after the other in the held-out tail.

use super::corpus::Corpus;
use super::token_file::{self, Tokens};
use super::{Batch, Batches, Dataset, HELD_OUT_SHARE, Part, Vocabulary, bad_data, input_shape};
use crate::error::Result;
use crate::graph::Graph;
use crate::train::About;
use remat_kernels::rng::{Key, uniform_f32, uniform_u32};
use std::ops::Range;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

/// How text becomes numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tokenizer {
    /// Every byte is a token.
    Bytes,
    /// Byte pairs, trained on the corpus until there are this many tokens.
    BytePairs(usize),
}

impl FromStr for Tokenizer {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<Tokenizer, String> {
        let vocabulary = text.strip_prefix("bpe:").and_then(|number| number.parse().ok());
        match (text, vocabulary) {
            ("bytes", _) => Ok(Tokenizer::Bytes),
            (_, Some(vocabulary)) => Ok(Tokenizer::BytePairs(vocabulary)),
            _ => Err(format!("`{text}` is not a tokenizer: write bytes, or for example bpe:8192")),
        }
    }
}

impl std::fmt::Display for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Tokenizer::Bytes => write!(f, "bytes"),
            Tokenizer::BytePairs(vocabulary) => write!(f, "bpe:{vocabulary}"),
        }
    }
}

/// What is predicted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Objective {
    /// The token after each position: for models that see only what came before.
    NextToken,
    /// Tokens that were hidden: for models that see everything. One in seven positions has a label; four fifths of
    /// those show the mask token, a tenth shows another token, a tenth the right one (Devlin et al., 2018).
    Masked,
}

/// A corpus as tokens.
#[derive(Clone, Debug)]
pub struct Text {
    tokens: Arc<Tokens>,
    /// Tokens of the corpus, without the mask token.
    vocabulary: Arc<Vocabulary>,
    fingerprint: u64,
    tokenizer: Tokenizer,
    objective: Objective,
}

impl Text {
    /// Opens a corpus. Byte pairs are trained the first time and kept in `cache`.
    pub fn open(corpus: &Path, tokenizer: Tokenizer, objective: Objective, cache: &Path) -> Result<Text> {
        let corpus = Corpus::open(corpus)?;
        let fingerprint = corpus.fingerprint;
        let (tokens, vocabulary) = match tokenizer {
            Tokenizer::Bytes => (Tokens::of_bytes(&corpus)?, Vocabulary::Bytes),
            Tokenizer::BytePairs(size) => {
                let trained_bytes = corpus.len - corpus.len / HELD_OUT_SHARE as u64;
                let (tokens, pairs) = token_file::byte_pairs(&corpus, size, cache, trained_bytes)?;
                (tokens, Vocabulary::BytePairs(pairs))
            }
        };
        let (tokens, vocabulary) = (Arc::new(tokens), Arc::new(vocabulary));
        Ok(Text { tokens, vocabulary, fingerprint, tokenizer, objective })
    }

    /// Opens a corpus for a model that predicts the next token; byte pairs are kept beside the file.
    pub fn file(corpus: impl AsRef<Path>, tokenizer: Tokenizer) -> Result<Text> {
        let corpus = corpus.as_ref();
        let folder = corpus.parent().filter(|parent| !parent.as_os_str().is_empty());
        Text::open(corpus, tokenizer, Objective::NextToken, folder.unwrap_or(Path::new(".")))
    }

    /// The `vocab` that a model for this text needs.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary.len() + usize::from(self.objective == Objective::Masked)
    }

    /// Number of tokens in the corpus.
    pub fn n_tokens(&self) -> usize {
        self.tokens.len()
    }

    /// Which text this is, by its contents.
    pub fn identity(&self) -> String {
        format!("text {:016x}, {}, {} tokens", self.fingerprint, self.tokenizer, self.tokens.len())
    }

    /// Batches of windows of `seq` tokens.
    pub fn batches(&self, part: Part, seq: usize, seed: u64) -> Result<TextBatches> {
        let n = self.tokens.len();
        let border = n - n / HELD_OUT_SHARE;
        let range = match part {
            Part::Training => 0..border,
            Part::HeldOut => border..n,
        };
        // A window and the token after it.
        if range.len() < seq + 1 {
            let message = format!(
                "has {n} tokens, of which {} are for {}; windows of {seq} tokens need {}: use a longer text or a \
                 smaller --seq",
                range.len(),
                if part == Part::Training { "training" } else { "evaluation" },
                seq + 1
            );
            return Err(bad_data("text", message));
        }
        Ok(TextBatches { text: self.clone(), part, range, seq, seed, window: vec![0; seq + 1] })
    }
}

impl Dataset for Text {
    fn batches(&self, model: &Graph, part: Part, seed: u64) -> Result<Box<dyn Batches>> {
        match *input_shape(model)? {
            [_, seq] => Ok(Box::new(Text::batches(self, part, seq, seed)?)),
            ref shape => Err(bad_data(&model.name, format!("does not read text: its input is {shape:?}"))),
        }
    }

    fn identity(&self) -> String {
        Text::identity(self)
    }

    fn about(&self) -> About {
        About::Text((*self.vocabulary).clone())
    }
}

/// Windows of one part of a corpus.
#[derive(Clone, Debug)]
pub struct TextBatches {
    text: Text,
    part: Part,
    range: Range<usize>,
    seq: usize,
    seed: u64,
    /// The tokens of one row, and the one after it.
    window: Vec<i32>,
}

/// One in this many positions has a label under [`Objective::Masked`].
const MASKED_SHARE: f32 = 0.15;

impl TextBatches {
    /// Where a row of a batch begins.
    fn start(&self, batch: u64, row: usize, n_rows: usize) -> usize {
        let n_starts = (self.range.len() - self.seq) as u64;
        let offset = match self.part {
            Part::Training => {
                let key = Key::new(self.seed, batch, crate::exec::init::name_hash("text window"));
                // Two numbers make a long one: a corpus may have more than 2^32 tokens.
                let high = u64::from(uniform_u32(key, 2 * row as u64));
                let low = u64::from(uniform_u32(key, 2 * row as u64 + 1));
                ((high << 32) | low) % n_starts
            }
            Part::HeldOut => ((batch - 1) * n_rows as u64 + row as u64) * self.seq as u64 % n_starts,
        };
        self.range.start + offset as usize
    }

    /// Input and label at a position of a row.
    fn at(&self, key: Key, row: usize, i: usize) -> (i32, i32) {
        let token = self.window[i];
        if self.text.objective == Objective::NextToken {
            return (token, self.window[i + 1]);
        }
        let draw = 3 * (row * self.seq + i) as u64;
        // One position of a batch always has a label: a loss over nothing would be no number.
        let is_certain = row == 0 && i == uniform_u32(key, u64::MAX) as usize % self.seq;
        if !is_certain && uniform_f32(key, draw) >= MASKED_SHARE {
            return (token, -1);
        }
        let shown = match uniform_f32(key, draw + 1) {
            u if u < 0.8 => self.text.vocabulary.len() as i32,
            u if u < 0.9 => {
                ((u64::from(uniform_u32(key, draw + 2)) * self.text.vocabulary.len() as u64) >> 32) as i32
            }
            _ => token,
        };
        (shown, token)
    }
}

impl Batches for TextBatches {
    fn fill(&mut self, batch: &mut Batch<'_>) -> Result<()> {
        let number = batch.number();
        let key = Key::new(self.seed, number, crate::exec::init::name_hash("text mask"));
        for input in batch.inputs() {
            let is_input = input.name() == "input";
            let elements = input.integers()?;
            let n_rows = elements.len() / self.seq;
            for (row, out) in elements.chunks_exact_mut(self.seq).enumerate() {
                let start = self.start(number, row, n_rows);
                self.text.tokens.read(start, &mut self.window)?;
                for (i, out) in out.iter_mut().enumerate() {
                    let (input, label) = self.at(key, row, i);
                    *out = if is_input { input } else { label };
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::batch::tests::fill_tokens;
    use super::*;

    fn filled(batches: &mut TextBatches, batch: u64, name: &str) -> Vec<i32> {
        let seq = batches.seq;
        fill_tokens(batches, batch, &[3, seq], name)
    }

    fn corpus() -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("corpus.txt");
        let text: String = (0..2000).map(|i| format!("line {i} of the corpus\n")).collect();
        std::fs::write(&path, text).unwrap();
        (folder, path)
    }

    #[test]
    fn labels_are_the_next_tokens_and_parts_do_not_meet() {
        let (folder, path) = corpus();
        let bytes = std::fs::read(&path).unwrap();
        for tokenizer in [Tokenizer::Bytes, Tokenizer::BytePairs(300)] {
            let text = Text::open(&path, tokenizer, Objective::NextToken, folder.path()).unwrap();
            let mut training = text.batches(Part::Training, 16, 7).unwrap();
            let (input, labels) = (filled(&mut training, 3, "input"), filled(&mut training, 3, "labels"));
            for (input, labels) in input.chunks(16).zip(labels.chunks(16)) {
                assert_eq!(input[1..], labels[..15]);
            }
            assert_eq!(input, filled(&mut training, 3, "input"));
            assert_ne!(input, filled(&mut training, 4, "input"));
            assert_ne!(input, filled(&mut text.batches(Part::Training, 16, 8).unwrap(), 3, "input"));
            let held_out = text.batches(Part::HeldOut, 16, 7).unwrap();
            assert_eq!(training.range.end, held_out.range.start);
            assert!(input.iter().all(|&t| (t as usize) < text.vocabulary()));
            if tokenizer == Tokenizer::Bytes {
                let mut held_out = held_out;
                let first: Vec<i32> = bytes[held_out.range.start..][..48].iter().map(|&b| b.into()).collect();
                assert_eq!(filled(&mut held_out, 1, "input"), first);
            }
        }
    }

    #[test]
    fn masked_positions_have_labels_and_the_others_have_none() {
        let (folder, path) = corpus();
        let text = Text::open(&path, Tokenizer::Bytes, Objective::Masked, folder.path()).unwrap();
        assert_eq!(text.vocabulary(), 257);
        let mut batches = text.batches(Part::Training, 4000, 1).unwrap();
        let (input, labels) = (filled(&mut batches, 1, "input"), filled(&mut batches, 1, "labels"));
        let labelled = labels.iter().filter(|&&l| l >= 0).count() as f64 / labels.len() as f64;
        assert!((0.13..0.17).contains(&labelled), "{labelled}");
        let hidden = input.iter().filter(|&&t| t == 256).count() as f64 / labels.len() as f64;
        assert!((0.10..0.14).contains(&hidden), "{hidden}");
        assert!(input.iter().zip(&labels).all(|(&t, &l)| l >= 0 || t < 256));
        // However small a batch is, it has a label.
        let mut tiny = text.batches(Part::Training, 1, 1).unwrap();
        assert!((1..50).all(|batch| filled(&mut tiny, batch, "labels").iter().any(|&label| label >= 0)));
    }

    #[test]
    fn byte_pairs_are_cached_and_made_anew_for_another_corpus() {
        let (folder, path) = corpus();
        let open = || Text::open(&path, Tokenizer::BytePairs(300), Objective::NextToken, folder.path());
        let first = open().unwrap();
        let cache = folder.path().join("corpus.txt.bpe-300.tokens");
        let written = std::fs::metadata(&cache).unwrap().modified().unwrap();
        assert_eq!(open().unwrap().identity(), first.identity());
        assert_eq!(std::fs::metadata(&cache).unwrap().modified().unwrap(), written);
        std::fs::write(&path, "another text ".repeat(500)).unwrap();
        assert_ne!(open().unwrap().identity(), first.identity());
        // A torn cache is no tokens.
        std::fs::write(&cache, &std::fs::read(&cache).unwrap()[..100]).unwrap();
        assert!(open().unwrap().n_tokens() > 100);
        let names = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(names, 3, "corpus, tokens, tokenizer");
    }

    #[test]
    fn bad_corpora_are_refused_with_their_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let open = |tokenizer| Text::open(&path, tokenizer, Objective::NextToken, folder.path());
        assert!(open(Tokenizer::Bytes).unwrap_err().to_string().starts_with("read "));
        std::fs::write(&path, "").unwrap();
        assert!(open(Tokenizer::Bytes).unwrap_err().to_string().ends_with("is empty"));
        std::fs::write(&path, b"abc\xFFdef").unwrap();
        let message = open(Tokenizer::BytePairs(300)).unwrap_err().to_string();
        assert!(message.contains("not UTF-8 at byte 3"), "{message}");
        let text = open(Tokenizer::Bytes).unwrap();
        let message = text.batches(Part::Training, 64, 0).unwrap_err().to_string();
        assert!(message.contains("7 tokens") && message.contains("--seq"), "{message}");
        assert!(open(Tokenizer::BytePairs(7)).unwrap_err().to_string().contains("257 to 65536"));
        assert!("bpe:x".parse::<Tokenizer>().unwrap_err().contains("bpe:8192"));
    }
}

//! A byte-pair tokenizer, trained on the corpus it is for.
//!
//! In: text and a size of the vocabulary. Out: tokens, of which the first 256 are the bytes and every further one is two
//! tokens side by side (Sennrich et al., "Neural machine translation of rare words with subword units", 2016). Pairs do
//! not cross the borders of words: a piece is a run of letters and digits or a run of other signs, with at most one
//! space before it, or a run of white space. Deterministic: of equally frequent pairs the one with the smaller ids wins.
//!
//! Training is O(text) for counting pieces and then O(changes · log pairs); encoding remembers pieces that it has seen.
//! [`BytePairs::to_json`] writes the tokenizer in the form that Hugging Face's `tokenizers` reads. That package itself
//! would add dozens of crates to the build for these two hundred lines.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, BinaryHeap, HashMap};

/// Ids are stored in two bytes.
pub(super) const MAX_VOCABULARY: usize = 1 << 16;
const N_BYTES: usize = 256;

/// A trained tokenizer: the pairs in the order in which they were merged.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(into = "serde_json::Value", try_from = "serde_json::Value")]
pub struct BytePairs {
    merges: Vec<(u32, u32)>,
    rank: HashMap<(u32, u32), u32>,
}

impl BytePairs {
    /// Trains on `text` until there are `vocabulary` tokens, or until no pair occurs twice.
    pub fn train(text: &str, vocabulary: usize) -> BytePairs {
        let mut counts = PieceCounts::default();
        counts.add(text);
        BytePairs::train_on(&counts, vocabulary)
    }

    /// Trains on pieces that were counted before.
    pub(super) fn train_on(counts: &PieceCounts, vocabulary: usize) -> BytePairs {
        let mut words: Vec<(&str, i64)> = counts.0.iter().map(|(piece, &n)| (piece.as_str(), n)).collect();
        words.sort_unstable();
        let mut training = Training::new(&words);
        let mut merges = Vec::new();
        while N_BYTES + merges.len() < vocabulary {
            let Some(pair) = training.most_frequent() else { break };
            training.merge(pair, (N_BYTES + merges.len()) as u32);
            merges.push(pair);
        }
        let rank = merges.iter().copied().zip(0..).collect();
        BytePairs { merges, rank }
    }

    /// Number of tokens.
    pub fn vocabulary(&self) -> usize {
        N_BYTES + self.merges.len()
    }

    /// Calls `each` with every token of the text.
    pub fn encode(&self, text: &str, each: impl FnMut(u32)) {
        Encoder::new(self).encode(text, each);
    }

    /// Merges the pair that was learned first, again and again.
    fn encode_piece(&self, piece: &str) -> Vec<u32> {
        let mut tokens: Vec<u32> = piece.bytes().map(u32::from).collect();
        loop {
            let pairs = tokens.windows(2).filter_map(|pair| self.rank.get(&(pair[0], pair[1])));
            let Some(&first) = pairs.min() else { return tokens };
            merge_in(&mut tokens, self.merges[first as usize], N_BYTES as u32 + first);
        }
    }

    /// The bytes of a token; none for a number that is no token.
    pub fn bytes(&self, token: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut rest = vec![token];
        while let Some(token) = rest.pop() {
            match (
                u8::try_from(token),
                (token as usize).checked_sub(N_BYTES).and_then(|i| self.merges.get(i)),
            ) {
                (Ok(byte), _) => bytes.push(byte),
                (_, Some(&(left, right))) => rest.extend([right, left]),
                _ => {}
            }
        }
        bytes
    }

    /// Reads what [`BytePairs::to_json`] wrote, or says what is wrong with it.
    pub fn from_json(json: &serde_json::Value) -> Result<BytePairs, String> {
        let letters = byte_letters();
        let mut ids: HashMap<String, u32> = letters.iter().map(char::to_string).zip(0..).collect();
        let list =
            json["model"]["merges"].as_array().ok_or("is no tokenizer of byte pairs: it has no merges")?;
        if list.len() > MAX_VOCABULARY - N_BYTES {
            return Err(format!("has {} merges; at most {MAX_VOCABULARY} tokens are possible", list.len()));
        }
        let mut merges = Vec::with_capacity(list.len());
        for merge in list {
            let part = |i: usize| merge[i].as_str().and_then(|name| Some((name, *ids.get(name)?)));
            let (Some((left_name, left)), Some((right_name, right))) = (part(0), part(1)) else {
                return Err(format!("merges {merge}, which are not two tokens that come before"));
            };
            let name = format!("{left_name}{right_name}");
            ids.insert(name, (N_BYTES + merges.len()) as u32);
            merges.push((left, right));
        }
        let rank = merges.iter().copied().zip(0..).collect();
        Ok(BytePairs { merges, rank })
    }

    /// The tokenizer as `tokenizer.json` of Hugging Face's `tokenizers`.
    pub fn to_json(&self) -> serde_json::Value {
        let letters = byte_letters();
        let mut names: Vec<String> = letters.iter().map(char::to_string).collect();
        let mut merges = Vec::new();
        for &(a, b) in &self.merges {
            let (a, b) = (names[a as usize].clone(), names[b as usize].clone());
            names.push(format!("{a}{b}"));
            merges.push(serde_json::json!([a, b]));
        }
        let vocabulary: serde_json::Map<String, serde_json::Value> =
            names.into_iter().zip(0u32..).map(|(name, id)| (name, id.into())).collect();
        let pattern = r" ?[\p{Alphabetic}\p{N}]+| ?[^\s\p{Alphabetic}\p{N}]+|\s+";
        serde_json::json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false},
                {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]},
            "post_processor": null,
            "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
            "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
                "vocab": vocabulary, "merges": merges},
        })
    }
}

/// How often each piece of a text occurs. Text may come in parts that cut no piece.
#[derive(Default)]
pub(super) struct PieceCounts(HashMap<String, i64>);

impl PieceCounts {
    pub(super) fn add(&mut self, text: &str) {
        for piece in pieces(text) {
            match self.0.get_mut(piece) {
                Some(n) => *n += 1,
                None => drop(self.0.insert(piece.to_owned(), 1)),
            }
        }
    }
}

/// Encodes text that comes in parts, and remembers the pieces that it has seen.
pub(super) struct Encoder<'p> {
    pairs: &'p BytePairs,
    known: HashMap<String, Vec<u32>>,
}

impl<'p> Encoder<'p> {
    pub(super) fn new(pairs: &'p BytePairs) -> Encoder<'p> {
        Encoder { pairs, known: HashMap::new() }
    }

    /// Calls `each` with every token of a part.
    pub(super) fn encode(&mut self, text: &str, mut each: impl FnMut(u32)) {
        for piece in pieces(text) {
            match self.known.get(piece) {
                Some(tokens) => tokens.iter().for_each(|&token| each(token)),
                None => {
                    let tokens = self.pairs.encode_piece(piece);
                    tokens.iter().for_each(|&token| each(token));
                    self.known.insert(piece.to_owned(), tokens);
                }
            }
        }
    }
}

impl From<BytePairs> for serde_json::Value {
    fn from(pairs: BytePairs) -> serde_json::Value {
        pairs.to_json()
    }
}

impl TryFrom<serde_json::Value> for BytePairs {
    type Error = String;
    fn try_from(json: serde_json::Value) -> Result<BytePairs, String> {
        BytePairs::from_json(&json)
    }
}

/// Where the last piece of a text begins: more text could make it longer.
pub(super) fn whole_pieces(text: &str) -> usize {
    text.len() - pieces(text).last().map_or(0, str::len)
}

/// Cuts text into pieces that pairs do not cross.
pub(super) fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let end = piece_end(rest)?;
        let (piece, after) = rest.split_at(end);
        rest = after;
        Some(piece)
    })
}

/// Where the first piece of the text ends; `None` for no text.
fn piece_end(text: &str) -> Option<usize> {
    let first = text.chars().next()?;
    let run = |from: usize, belongs: fn(char) -> bool| {
        text[from..].find(|c| !belongs(c)).map_or(text.len(), |length| from + length)
    };
    let is_sign = |c: char| !c.is_whitespace() && !c.is_alphanumeric();
    let begin = usize::from(first == ' ');
    Some(match text[begin..].chars().next() {
        Some(c) if c.is_alphanumeric() => run(begin, char::is_alphanumeric),
        Some(c) if is_sign(c) => run(begin, is_sign),
        _ => run(0, char::is_whitespace),
    })
}

/// Replaces every occurrence of a pair.
fn merge_in(tokens: &mut Vec<u32>, pair: (u32, u32), token: u32) {
    let mut kept = 0;
    let mut at = 0;
    while at < tokens.len() {
        let is_pair = at + 1 < tokens.len() && (tokens[at], tokens[at + 1]) == pair;
        tokens[kept] = if is_pair { token } else { tokens[at] };
        kept += 1;
        at += if is_pair { 2 } else { 1 };
    }
    tokens.truncate(kept);
}

/// Words under way to their tokens, and how often each pair occurs side by side.
struct Training {
    words: Vec<(Vec<u32>, i64)>,
    count: HashMap<(u32, u32), i64>,
    /// Words in which a pair may occur.
    places: HashMap<(u32, u32), BTreeSet<u32>>,
    /// Counts that were true when they were pushed; stale ones are skipped.
    queue: BinaryHeap<(i64, std::cmp::Reverse<(u32, u32)>)>,
}

impl Training {
    fn new(words: &[(&str, i64)]) -> Training {
        let words: Vec<(Vec<u32>, i64)> =
            words.iter().map(|(word, n)| (word.bytes().map(u32::from).collect(), *n)).collect();
        let mut training = Training {
            count: HashMap::new(),
            places: HashMap::new(),
            queue: BinaryHeap::new(),
            words: Vec::new(),
        };
        for (word, (tokens, n)) in (0..).zip(&words) {
            training.add(word, tokens, *n);
        }
        training.words = words;
        let pairs: Vec<(u32, u32)> = training.count.keys().copied().collect();
        pairs.into_iter().for_each(|pair| training.push(pair));
        training
    }

    /// Counts the pairs of a word `n` times; `n` is negative when the word is about to change.
    fn add(&mut self, word: u32, tokens: &[u32], n: i64) {
        for pair in tokens.windows(2).map(|pair| (pair[0], pair[1])) {
            *self.count.entry(pair).or_default() += n;
            self.places.entry(pair).or_default().insert(word);
        }
    }

    fn push(&mut self, pair: (u32, u32)) {
        self.queue.push((self.count[&pair], std::cmp::Reverse(pair)));
    }

    fn most_frequent(&mut self) -> Option<(u32, u32)> {
        while let Some((count, std::cmp::Reverse(pair))) = self.queue.pop() {
            if count >= 2 && self.count.get(&pair) == Some(&count) {
                return Some(pair);
            }
        }
        None
    }

    fn merge(&mut self, pair: (u32, u32), token: u32) {
        let mut changed = BTreeSet::new();
        for word in self.places.remove(&pair).unwrap_or_default() {
            let (mut tokens, n) = std::mem::take(&mut self.words[word as usize]);
            self.add(word, &tokens, -n);
            changed.extend(tokens.windows(2).map(|pair| (pair[0], pair[1])));
            merge_in(&mut tokens, pair, token);
            self.add(word, &tokens, n);
            changed.extend(tokens.windows(2).map(|pair| (pair[0], pair[1])));
            self.words[word as usize] = (tokens, n);
        }
        self.count.remove(&pair);
        self.places.remove(&pair);
        for pair in changed.into_iter().filter(|changed| *changed != pair) {
            self.push(pair);
        }
    }
}

/// The visible letter that stands for each byte in tokenizer files: itself where it is printable, else one from 256 on.
fn byte_letters() -> Vec<char> {
    let is_printable = |byte: u32| matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
    let mut next = 256;
    (0..N_BYTES as u32)
        .map(|byte| {
            let code = if is_printable(byte) { byte } else { next };
            next += u32::from(code >= 256);
            char::from_u32(code).expect("letters below 512 exist")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(tokenizer: &BytePairs, text: &str) -> Vec<u32> {
        let mut tokens = Vec::new();
        tokenizer.encode(text, |token| tokens.push(token));
        tokens
    }

    fn decoded(tokenizer: &BytePairs, tokens: &[u32]) -> Vec<u8> {
        let bytes = |token: u32| -> Vec<u8> {
            let mut stack = vec![token];
            let mut bytes = Vec::new();
            while let Some(token) = stack.pop() {
                match tokenizer.merges.get((token as usize).wrapping_sub(N_BYTES)) {
                    None => bytes.push(token as u8),
                    Some(&(a, b)) => stack.extend([b, a]),
                }
            }
            bytes
        };
        tokens.iter().flat_map(|&token| bytes(token)).collect()
    }

    #[test]
    fn pieces_are_words_signs_and_spaces() {
        let cut: Vec<&str> = pieces("It's  5 µm,\n\n (really)…").collect();
        assert_eq!(cut, ["It", "'", "s", "  ", "5", " µm", ",", "\n\n ", "(", "really", ")…"]);
    }

    #[test]
    fn the_most_frequent_pair_is_merged_first_and_text_survives() {
        let text = "low lower lowest slow low low ünïcödé 🙂";
        let tokenizer = BytePairs::train(text, 300);
        assert_eq!(tokenizer.merges[0], (u32::from(b'l'), u32::from(b'o')));
        assert_eq!(tokenizer.merges[1], (256, u32::from(b'w')));
        let tokens = encoded(&tokenizer, text);
        assert!(tokens.len() < text.len() && tokens.iter().all(|&t| (t as usize) < tokenizer.vocabulary()));
        assert_eq!(decoded(&tokenizer, &tokens), text.as_bytes());
        // Unseen text is at worst its bytes.
        assert_eq!(decoded(&tokenizer, &encoded(&tokenizer, "zzz ß")), "zzz ß".as_bytes());
    }

    #[test]
    fn training_agrees_with_counting_anew_for_every_merge() {
        let text =
            "she sells sea shells by the sea shore the shells she sells are sea shells for sure ".repeat(3);
        let quick = BytePairs::train(&text, 290);
        let mut words: Vec<Vec<u32>> = pieces(&text).map(|p| p.bytes().map(u32::from).collect()).collect();
        for (rank, &merged) in quick.merges.iter().enumerate() {
            let mut count: HashMap<(u32, u32), i64> = HashMap::new();
            for pair in words.iter().flat_map(|word| word.windows(2)) {
                *count.entry((pair[0], pair[1])).or_default() += 1;
            }
            let best = count.iter().max_by_key(|(pair, n)| (**n, std::cmp::Reverse(**pair))).unwrap();
            assert_eq!((*best.0, count[&merged]), (merged, *best.1), "merge {rank}");
            words.iter_mut().for_each(|word| merge_in(word, merged, (N_BYTES + rank) as u32));
        }
    }

    #[test]
    fn the_file_has_every_token_and_every_merge() {
        let tokenizer = BytePairs::train("aa ab aa ab abc", 260);
        let json = tokenizer.to_json();
        assert_eq!(json["model"]["vocab"].as_object().unwrap().len(), tokenizer.vocabulary());
        assert_eq!(json["model"]["merges"].as_array().unwrap().len(), tokenizer.merges.len());
        assert_eq!(json["model"]["vocab"]["Ġ"], 32);
    }
}

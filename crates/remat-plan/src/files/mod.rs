//! Files of others, read without waiting and up to a limit; files of ours, replaced whole or not at all.
//!
//! Every crate that reads or writes files does it here, so that the same ones are refused everywhere. Messages name no
//! path: who calls knows what the file is for.

mod read;
mod replace;

pub use read::{
    DESCRIPTION_LIMIT, DOCUMENT_LIMIT, open_at_once, open_lock, open_regular, read_regular,
    read_regular_text, read_text,
};
pub use replace::{PARTIAL, check_replaceable, create_folder, replace, replace_bytes};

//! TensorBoard event files: scalars per step.
//!
//! The format is a sequence of records, each with its length, two checksums and an `Event` message of protocol buffers.
//! Only the few fields that scalars need are written, so the encoder is these few lines instead of TensorFlow. Formats:
//! `tensorflow/core/lib/io/record_writer.h` and `tensorflow/core/util/event.proto` of the TensorFlow project.

use anyhow::{Context as _, Result};
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// An open event file.
#[derive(Debug)]
pub(crate) struct Events {
    path: PathBuf,
    file: File,
}

impl Events {
    /// Begins a file in `folder`. For a run resumed after `step`, TensorBoard forgets later points of earlier files.
    pub(crate) fn create(folder: &Path, step: u64) -> Result<Events> {
        let action = || format!("writing events to {}", folder.display());
        std::fs::create_dir_all(folder).with_context(action)?;
        let name = format!("events.out.tfevents.{}.remat.{}", wall_time() as u64, std::process::id());
        let path = folder.join(name);
        let file = File::create_new(&path).with_context(action)?;
        let mut events = Events { path, file };
        let mut version = event(0);
        bytes_field(&mut version, 3, b"brain.Event:2");
        events.write(&version)?;
        if step > 0 {
            // A session log with the status START, as of the next step.
            let mut restart = event(step + 1);
            bytes_field(&mut restart, 7, &[1 << 3, 1]);
            events.write(&restart)?;
        }
        Ok(events)
    }

    /// Adds the scalars of a step.
    pub(crate) fn add(&mut self, step: u64, scalars: &[(&str, Option<f32>)]) -> Result<()> {
        let mut summary = Vec::new();
        for (tag, value) in scalars {
            let Some(value) = value else { continue };
            // Value { tag = 1, simple_value = 2 } as element 1 of the summary.
            let mut element = Vec::new();
            bytes_field(&mut element, 1, tag.as_bytes());
            element.push((2 << 3) | 5);
            element.extend(value.to_le_bytes());
            bytes_field(&mut summary, 1, &element);
        }
        let mut event = event(step);
        bytes_field(&mut event, 5, &summary);
        self.write(&event)
    }

    fn write(&mut self, event: &[u8]) -> Result<()> {
        let written = self.file.write_all(&record(event));
        written.with_context(|| format!("writing {}", self.path.display()))
    }
}

/// The beginning of an `Event`: wall time and step.
fn event(step: u64) -> Vec<u8> {
    let mut event = vec![(1 << 3) | 1];
    event.extend(wall_time().to_le_bytes());
    event.push(2 << 3);
    varint(&mut event, step);
    event
}

/// Length, checksum of the length, data, checksum of the data.
fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let mut record = length.to_vec();
    record.extend(masked(crc32c(&length)).to_le_bytes());
    record.extend(data);
    record.extend(masked(crc32c(data)).to_le_bytes());
    record
}

fn bytes_field(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    out.push((field << 3) | 2);
    varint(out, bytes.len() as u64);
    out.extend(bytes);
}

fn varint(out: &mut Vec<u8>, mut x: u64) {
    while x >= 0x80 {
        out.push(x as u8 | 0x80);
        x >>= 7;
    }
    out.push(x as u8);
}

/// The Castagnoli checksum, bit by bit: a few hundred bytes per step pass through it.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { (crc >> 1) ^ 0x82F6_3B78 } else { crc >> 1 };
    !bytes.iter().fold(!0u32, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), |crc, _| step(crc)))
}

/// The format stores checksums rotated and shifted, so that data with embedded checksums has good ones too.
fn masked(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xA282_EAD8)
}

fn wall_time() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_the_published_ones() {
        // RFC 3720, appendix B.4.
        assert_eq!(crc32c(&[0; 32]), 0x8A91_36AA);
        assert_eq!(crc32c(&[0xFF; 32]), 0x62A8_AB43);
        let counting: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(&counting), 0x46DD_794E);
    }

    #[test]
    fn a_file_is_a_sequence_of_whole_records() {
        let folder = tempfile::tempdir().unwrap();
        let mut events = Events::create(folder.path(), 7).unwrap();
        events.add(300, &[("loss", Some(0.5)), ("none", None)]).unwrap();
        let mut rest = &std::fs::read(&events.path).unwrap()[..];
        let mut records = Vec::new();
        while !rest.is_empty() {
            let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
            let data = rest[12..12 + length].to_vec();
            assert_eq!(record(&data), rest[..16 + length]);
            rest = &rest[16 + length..];
            records.push(data);
        }
        assert_eq!(records.len(), 3);
        assert!(records[0].ends_with(b"brain.Event:2"));
        assert_eq!(records[1][9..], [16, 8, 58, 2, 8, 1], "step 8, session log, start");
        let loss =
            [&[16, 0xAC, 2, 42, 13, 10, 11, 10, 4][..], b"loss", &[21], &0.5f32.to_le_bytes()].concat();
        assert_eq!(records[2][9..], loss);
    }
}

//! The lines of a problem that describe memory outside of the budget: `channel` and `store`.

use crate::ids::ChannelId;
use crate::lines::{Line, TextError, Word};
use crate::spec::{Channel, Link, Store, Way};
use std::fmt::Write as _;

const OVERLAPS: [(&str, bool); 2] = [("overlaps", true), ("waits", false)];

const PARTS: [(&str, Part); 3] =
    [("capacity", Part::Capacity), ("out", Part::Link(Way::Out)), ("in", Part::Link(Way::In))];

#[derive(Clone, Copy)]
enum Part {
    Capacity,
    Link(Way),
}

/// `channel NAME overlaps`, or `waits`.
pub(super) fn channel(line: &mut Line<'_>) -> Result<Channel, TextError> {
    let name = line.word("the name of the channel")?;
    Ok(Channel { name, overlaps: line.one_of("what the program does meanwhile", &OVERLAPS)? })
}

/// `store NAME capacity BYTES out CHANNEL LATENCY COST in CHANNEL LATENCY COST`; without `capacity` there is no limit.
pub(super) fn store(line: &mut Line<'_>) -> Result<Store, TextError> {
    let name = line.word("the name of the store")?;
    let (mut capacity_bytes, mut out, mut back) = (None, None, None);
    while !line.is_at_end() {
        match line.one_of("part of a store", &PARTS)? {
            Part::Capacity => capacity_bytes = Some(line.bytes("a number of bytes")?),
            Part::Link(Way::Out) => out = Some(link(line)?),
            Part::Link(Way::In) => back = Some(link(line)?),
        }
    }
    let missing = |way| {
        line.error(
            format!("the store has no `{way}`"),
            format!("add `{way}`, the number of a channel, a latency and a cost per byte"),
        )
    };
    let out = out.ok_or_else(|| missing(Way::Out))?;
    let back = back.ok_or_else(|| missing(Way::In))?;
    Ok(Store { name, capacity_bytes, out, back })
}

fn link(line: &mut Line<'_>) -> Result<Link, TextError> {
    let channel = ChannelId(line.index("a channel")?);
    Ok(Link { channel, latency: line.number("a latency")?, cost_per_byte: line.number("a cost per byte")? })
}

pub(super) fn print(text: &mut String, channels: &[Channel], stores: &[Store]) {
    for channel in channels {
        let (word, _) = OVERLAPS[usize::from(!channel.overlaps)];
        let _ = writeln!(text, "channel {} {word}", Word(&channel.name));
    }
    for store in stores {
        let _ = write!(text, "store {}", Word(&store.name));
        if let Some(capacity) = store.capacity_bytes {
            let _ = write!(text, " capacity {}", capacity.0);
        }
        for way in [Way::Out, Way::In] {
            let Link { channel, latency, cost_per_byte } = store.link(way);
            let _ = write!(text, " {way} {channel} {latency:?} {cost_per_byte:?}");
        }
        text.push('\n');
    }
}

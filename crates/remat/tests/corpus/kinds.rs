//! The kinds of faults that the cases show, so that none is forgotten.

use remat::fuse::FusionFault;
use remat::graph::GraphFault;
use remat::layout::LayoutFault;
use remat::rewrite::ScheduleFault;
use std::cell::RefCell;
use std::collections::BTreeSet;

/// The name of a fault's kind, and all names. A new kind does not compile before it is in the list, and so has a case.
macro_rules! kinds {
    ($kind:ident, $all:ident, $fault:ident: $($name:ident)*) => {
        fn $kind(fault: &$fault) -> &'static str {
            match fault {
                $($fault::$name { .. } => concat!(stringify!($fault), "::", stringify!($name)),)*
            }
        }

        const $all: &[&str] = &[$(concat!(stringify!($fault), "::", stringify!($name)),)*];
    };
}

kinds! { graph_kind, GRAPH_KINDS, GraphFault:
    NoSuchValue OtherProducer NotMade SourcesOutOfOrder SameName SourceWithProducer NoOrigin RepeatsOther ReadsEarly
    ReadsReplaced TypeRule OtherTypes UpdateWithoutState ConsumesWithoutUpdate ConsumesNothing ConsumesOther
    ReplacedByOtherType ReplacedTwice NoView OutputLost
}

kinds! { fusion_kind, FUSION_KINDS, FusionFault:
    OtherSources NewValue Other OtherOptimizer
}

kinds! { schedule_kind, SCHEDULE_KINDS, ScheduleFault:
    OtherSources NoSuchNode NoSuchOrigin RunsTwice OtherOp OtherNumberOfInputs OtherNumberOfOutputs NotLive StandsForOther
    NoSuchValue OtherProducer OtherType MadeAgain FreesNothing NeverRuns UpdatesAgain StateLost OtherNumberOfResults
    ResultLost OtherResult NoSuchSlot SlotOfOther SlotTaken SlotEmpty CopiesDead CopyOutOfRange CopyOfOtherType CopyOfOther
    CopiedAgain StaysStored CarriesNoState CarriedElsewhere
}

kinds! { layout_kind, LAYOUT_KINDS, LayoutFault:
    ShortTable NoSuchNode NoSuchValue Malformed NoPlace Unaligned Outside Overlap MadeAgain FreedWhenDead ReadsDead ViewApart
    NoSuchPair SharedApart MayNotOverwrite TakesOverDead KeepsOldState OverwrittenWhenLive NoWorkspace StateLost StateMoved
    Displaced WrongUse ArenaTooLarge NoSuchSlot NoSuchStore CopiesDead CopiedAgain SlotTaken SlotEmpty OtherSize
    StateMovedInStore StoreTooLarge
}

/// What was seen.
#[derive(Default)]
pub(crate) struct Seen(RefCell<BTreeSet<&'static str>>);

impl Seen {
    pub(crate) fn graph(&self, fault: &GraphFault) {
        self.0.borrow_mut().insert(graph_kind(fault));
    }

    pub(crate) fn fusion(&self, fault: &FusionFault) {
        self.0.borrow_mut().insert(fusion_kind(fault));
    }

    pub(crate) fn schedule(&self, fault: &ScheduleFault) {
        self.0.borrow_mut().insert(schedule_kind(fault));
    }

    pub(crate) fn layout(&self, fault: &LayoutFault) {
        self.0.borrow_mut().insert(layout_kind(fault));
    }

    pub(crate) fn assert_complete(&self) {
        let seen = self.0.borrow();
        let all = [GRAPH_KINDS, FUSION_KINDS, SCHEDULE_KINDS, LAYOUT_KINDS].concat();
        let missing: Vec<_> = all.iter().filter(|kind| !seen.contains(*kind)).collect();
        assert!(missing.is_empty(), "no case shows {missing:?}");
    }
}

//! Integer names of values, nodes, stores and channels: indices into the lists of a [`crate::Problem`].

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// The id of the element at `index`.
            pub fn new(index: usize) -> Self {
                $name(u32::try_from(index).expect("a problem has fewer than 2^32 values, nodes and stores"))
            }

            /// The position in the problem's list.
            #[inline]
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// A value: the result of a node or an input of the problem.
    ValueId
}

id! {
    /// A node: one operation of the step.
    NodeId
}

id! {
    /// A store: memory outside of the budget.
    StoreId
}

id! {
    /// A channel: what copies to and from stores go through.
    ChannelId
}

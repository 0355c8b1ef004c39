//! Metadata contexts: what a client may ask of ranges (section "Metadata querying").

use std::collections::BTreeSet;

/// Which ranges are holes (section "The `base:` metadata namespace").
pub const ALLOCATION: &str = "base:allocation";

/// What stands before the name of a dirty bitmap (`docs/interop/nbd.txt` of QEMU).
pub const DIRTY_BITMAP: &str = "qemu:dirty-bitmap:";

/// Contexts that a client may select: each is a chunk of the reply to every block status.
pub const CONTEXTS_MAX: usize = 16;

/// Dirty bitmaps that are listed at a time.
pub const BITMAPS_LISTED_MAX: usize = 128;

/// A context that a client has selected. Its identifier is its place among them, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdContext {
    /// [`ALLOCATION`].
    Allocation,
    /// Which ranges have changed since a moment.
    DirtyBitmap(DirtyBitmap),
}

/// A dirty bitmap, as it was when it was selected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirtyBitmap {
    /// What follows [`DIRTY_BITMAP`].
    pub name: String,
    /// What no other has that is called so later.
    pub identity: [u8; 16],
}

/// Which dirty bitmaps the driver is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BitmapsAsked {
    /// NBD_OPT_LIST_META_CONTEXT: names, in their order.
    List {
        /// All of them,
        is_all: bool,
        /// or those of these names;
        names: BTreeSet<String>,
        /// and of them those behind this one: the others are told.
        after: Option<String>,
    },
    /// NBD_OPT_SET_META_CONTEXT: those of these names, with their identities.
    Set(BTreeSet<String>),
}

impl BitmapsAsked {
    /// Whether a bitmap of that name is asked for, wherever the list has come to.
    pub fn has(&self, name: &str) -> bool {
        match self {
            BitmapsAsked::List { is_all: true, .. } => true,
            BitmapsAsked::List { names, .. } | BitmapsAsked::Set(names) => names.contains(name),
        }
    }

    /// Whether none can be found.
    fn is_nothing(&self) -> bool {
        match self {
            BitmapsAsked::List { is_all, names, .. } => !is_all && names.is_empty(),
            BitmapsAsked::Set(names) => names.is_empty(),
        }
    }
}

/// Which metadata contexts are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContextsAsked {
    /// The export; empty for the default one.
    pub name: String,
    /// [`ALLOCATION`] is.
    pub is_allocation: bool,
    /// These dirty bitmaps are; `None`: none.
    pub bitmaps: Option<BitmapsAsked>,
}

impl ContextsAsked {
    /// What an option with these queries asks for, which selects contexts or lists them. A list
    /// may be of a whole namespace, and is of all contexts where there is no query. A query of
    /// another namespace finds nothing.
    pub fn new(name: String, queries: &[&str], sets: bool) -> ContextsAsked {
        let lists = |wildcards: &[&str]| {
            let asked = || queries.iter().any(|query| wildcards.contains(query));
            !sets && (queries.is_empty() || asked())
        };
        let names = queries.iter().filter_map(|query| {
            let name = query.strip_prefix(DIRTY_BITMAP)?;
            (!name.is_empty()).then(|| name.to_owned())
        });
        let names = names.collect();
        let bitmaps = match sets {
            true => BitmapsAsked::Set(names),
            false => BitmapsAsked::List {
                is_all: lists(&["qemu:", DIRTY_BITMAP]),
                names,
                after: None,
            },
        };
        ContextsAsked {
            name,
            is_allocation: lists(&["base:"]) || queries.contains(&ALLOCATION),
            bitmaps: (!bitmaps.is_nothing()).then_some(bitmaps),
        }
    }

    /// Whether more are to be selected than may be.
    pub fn is_too_much(&self) -> bool {
        match &self.bitmaps {
            Some(BitmapsAsked::Set(names)) => {
                names.len() + usize::from(self.is_allocation) > CONTEXTS_MAX
            }
            _ => false,
        }
    }
}

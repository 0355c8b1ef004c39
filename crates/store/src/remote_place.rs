//! Where the blocks of a remote volume are, and what reaches them: what another room supplies.

use std::any::Any;
use std::fmt::{Debug, Display};
use std::ops::Deref;
use std::sync::Arc;

use crate::Io;
use crate::remote_call::RemoteCall;

/// What is found of blocks that another machine keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteInfo {
    /// Text that is the same on every way to them, and of nothing else.
    pub identifier: String,
    /// Bytes of a logical block.
    pub block_bytes: u32,
    /// Capacity.
    pub size_bytes: u64,
    /// A completed write may be lost there until a flush.
    pub volatile_cache: bool,
    /// Space is taken there as it is written, and given back for zeros.
    pub is_thin: bool,
}

/// Where a remote volume is: what opens it.
pub trait RemotePlace: Any + Debug + Display + Send + Sync {
    /// Connects. Blocks.
    ///
    /// # Errors
    /// A sentence for the user.
    fn open(&self, volume: &str) -> Result<Arc<dyn RemoteBlocks>, String>;

    /// Looks at what would be opened. Blocks.
    ///
    /// # Errors
    /// A sentence for the user.
    fn examine(&self) -> Result<RemoteInfo, String>;

    /// Whether it is the same place, reached in the same way.
    fn equals(&self, other: &dyn RemotePlace) -> bool;

    /// Likewise, but for what proves to it who this host is: [`RemoteBlocks::follow`] takes it.
    fn equals_but_for_credentials(&self, other: &dyn RemotePlace) -> bool;
}

/// A place, as a description has it.
#[derive(Clone, Debug)]
pub struct RemoteAt(pub Arc<dyn RemotePlace>);

impl Deref for RemoteAt {
    type Target = dyn RemotePlace;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl PartialEq for RemoteAt {
    fn eq(&self, other: &RemoteAt) -> bool {
        self.0.equals(&*other.0)
    }
}

impl Eq for RemoteAt {}

/// Blocks that another machine keeps. They are let go when this is dropped, which blocks.
pub trait RemoteBlocks: Send + Sync {
    /// What was found when they were reached first.
    fn info(&self) -> &RemoteInfo;

    /// Begins a read, a write, a flush or zeros. `call` ends it, from any thread, once nothing
    /// uses its memory any more. What it wrote is neither lost nor done later, after that.
    fn begin(&self, io: Io, call: RemoteCall);

    /// Capacity as it was told last.
    fn size_bytes(&self) -> u64;

    /// How often what was written and not flushed may have been lost.
    fn losses(&self) -> u64;

    /// Takes the credentials of a place that is the same but for those: every connection from
    /// now on is made by them, and those that there are stay.
    fn follow(&self, place: &dyn RemotePlace);

    /// The ways to them.
    fn paths(&self) -> Vec<PathStatus>;
}

/// How a way to a remote volume stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathStatus {
    /// Where it leads.
    pub address: String,
    /// It is connected.
    pub is_live: bool,
    /// How often its connection was lost.
    pub losses: u64,
    /// Why it was lost, or is not made.
    pub reason: Option<String>,
}

impl PathStatus {
    /// One word for it: `live` or `down`.
    pub fn word(&self) -> &'static str {
        match self.is_live {
            true => "live",
            false => "down",
        }
    }
}

//! NBD_OPT_LIST_META_CONTEXT and NBD_OPT_SET_META_CONTEXT.

use wire::nbd::{nbd_option as option, option_reply as reply};

use super::options::OptionAsked;
use super::{NbdOp, NbdServer, Phase};
use crate::context::{
    ALLOCATION, BITMAPS_LISTED_MAX, BitmapsAsked, ContextsAsked, DIRTY_BITMAP, DirtyBitmap,
    NbdContext,
};

/// How the question stands which dirty bitmaps an export has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum BitmapsState {
    #[default]
    NotAsked,
    /// The driver says so when it knows.
    Asked,
    /// The driver is asked for more when what was told is sent.
    GoesOn,
}

/// Which dirty bitmaps there are: the answer to [`BitmapsAsked`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BitmapsFound {
    /// The first [`BITMAPS_LISTED_MAX`] of a [`BitmapsAsked::List`], or as many as there are.
    List(Vec<String>),
    /// Those of a [`BitmapsAsked::Set`].
    Set(Vec<DirtyBitmap>),
}

impl NbdServer {
    /// The dirty bitmaps that the driver is asked for: those of the export of
    /// [`NbdServer::asked_name`].
    pub fn bitmaps_asked(&self) -> Option<&BitmapsAsked> {
        match &self.asked {
            OptionAsked::Contexts(asked) if self.bitmaps == BitmapsState::Asked => {
                asked.bitmaps.as_ref()
            }
            _ => None,
        }
    }

    /// These dirty bitmaps there are. Nothing comes of it where the connection has ended.
    pub fn bitmaps(&mut self, found: BitmapsFound) {
        if self.phase != Phase::Asked || self.bitmaps != BitmapsState::Asked {
            return;
        }
        self.bitmaps = BitmapsState::NotAsked;
        let OptionAsked::Contexts(asked) = std::mem::take(&mut self.asked) else {
            return;
        };
        match found {
            BitmapsFound::List(names) => self.list_bitmaps(asked, names),
            BitmapsFound::Set(bitmaps) => self.select(asked, bitmaps),
        }
    }

    /// The export is there of which contexts are asked for.
    pub(super) fn contexts_of_export(&mut self, asked: ContextsAsked) {
        let sets = self.option.option.get() == option::SET_META_CONTEXT;
        match &asked.bitmaps {
            Some(_) => {
                self.asked = OptionAsked::Contexts(asked);
                self.bitmaps = BitmapsState::Asked;
                self.phase = Phase::Asked;
            }
            None if sets => self.select(asked, Vec::new()),
            None => self.list_bitmaps(asked, Vec::new()),
        }
    }

    /// What the driver is asked next where a list goes on.
    pub(super) fn goes_on(&mut self) -> Option<NbdOp> {
        if self.bitmaps == BitmapsState::GoesOn {
            self.bitmaps = BitmapsState::NotAsked;
            return Some(NbdOp::Find);
        }
        self.listed_to.is_some().then_some(NbdOp::List)
    }

    fn list_bitmaps(&mut self, mut asked: ContextsAsked, names: Vec<String>) {
        // The identifier is reserved there.
        if std::mem::take(&mut asked.is_allocation) {
            self.tell_context(0, ALLOCATION, "");
        }
        for name in &names {
            self.tell_context(0, DIRTY_BITMAP, name);
        }
        self.phase = Phase::Options;
        if let Some(BitmapsAsked::List { after, .. }) = &mut asked.bitmaps
            && names.len() >= BITMAPS_LISTED_MAX
        {
            *after = names.into_iter().next_back();
            self.asked = OptionAsked::Contexts(asked);
            self.bitmaps = BitmapsState::GoesOn;
            self.phase = Phase::Asked;
            return;
        }
        self.acknowledge();
    }

    fn select(&mut self, asked: ContextsAsked, bitmaps: Vec<DirtyBitmap>) {
        let allocation = asked.is_allocation.then_some(NbdContext::Allocation);
        let bitmaps = bitmaps.into_iter().map(NbdContext::DirtyBitmap);
        let contexts: Vec<NbdContext> = allocation.into_iter().chain(bitmaps).collect();
        for (id, context) in (1..).zip(&contexts) {
            match context {
                NbdContext::Allocation => self.tell_context(id, ALLOCATION, ""),
                NbdContext::DirtyBitmap(bitmap) => {
                    self.tell_context(id, DIRTY_BITMAP, &bitmap.name);
                }
            }
        }
        self.selected = Some((asked.name, contexts.into()));
        self.phase = Phase::Options;
        self.acknowledge();
    }

    fn tell_context(&mut self, id: u32, namespace: &str, name: &str) {
        let data = [&id.to_be_bytes(), namespace.as_bytes(), name.as_bytes()];
        self.reply_parts(reply::META_CONTEXT, &data);
    }
}

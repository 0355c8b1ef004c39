//! What the iSCSI connections of one reactor share.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use engine::ConnectionId;
use engine::job::Jobs;
use iscsi::SessionId;
use iscsi::iser::StreamCounts;

use super::session::IscsiSession;
use super::{Service, TaskWork};

/// What the connections of one reactor share.
pub struct Local {
    pub(crate) service: Arc<Service>,
    pub(crate) jobs: Rc<RefCell<Jobs<TaskWork>>>,
    /// Its sessions, as long as they have connections.
    pub(crate) sessions: RefCell<HashMap<SessionId, Weak<RefCell<IscsiSession>>>>,
    /// Connections that can go on though nothing came for them.
    pub(crate) due: RefCell<Vec<ConnectionId>>,
    /// Those by RDMA, of every protocol.
    pub(crate) streams: StreamCounts,
}

impl Local {
    /// Of a reactor without connections.
    pub fn new(service: Arc<Service>, jobs: Jobs<TaskWork>, streams: StreamCounts) -> Local {
        Local {
            service,
            jobs: Rc::new(RefCell::new(jobs)),
            sessions: RefCell::default(),
            due: RefCell::default(),
            streams,
        }
    }

    /// The next connection that can go on though nothing came for it.
    #[inline]
    pub fn take_due(&self) -> Option<ConnectionId> {
        self.due.borrow_mut().pop()
    }

    /// Whether there is one.
    #[inline]
    pub fn has_due(&self) -> bool {
        !self.due.borrow().is_empty()
    }

    /// A session of this reactor that still has connections.
    pub(crate) fn session(&self, id: SessionId) -> Option<Rc<RefCell<IscsiSession>>> {
        self.sessions.borrow().get(&id)?.upgrade()
    }

    /// Puts a new session in; forgets those that are over.
    pub(crate) fn insert(&self, id: SessionId, session: &Rc<RefCell<IscsiSession>>) {
        let mut sessions = self.sessions.borrow_mut();
        sessions.retain(|_, session| session.strong_count() > 0);
        sessions.insert(id, Rc::downgrade(session));
    }
}

//! The server's end of a connection.

mod contexts;
mod options;
mod requests;
mod transmit;

use std::collections::VecDeque;
use std::sync::Arc;

use machine::inbound::{Inbound, Walk};
use machine::{Machine, Nanos, RecvPlan, Step, Tag, Tail, Transmit};
use wire::nbd::{Greeting, NBD_MAGIC, OPTION_MAGIC, OptionHeader, handshake_flags as flags};
use zerocopy::IntoBytes;

use crate::context::NbdContext;
use crate::error::{FatalError, NbdError};
use crate::export::NbdExport;
use crate::request::NbdRequest;

pub use self::contexts::BitmapsFound;
pub(crate) use self::transmit::{ChunkHeader, ReplyTo};

/// Staging in the handshake: options are small.
const STAGE_HANDSHAKE: u32 = 4096;
/// Staging when many small requests are expected.
const STAGE_LARGE: u32 = 256 << 10;
/// From so many bytes of payload on, a receive of its own costs less than copying them: the next
/// header is expected alone.
const BULK_MIN: u32 = 16 << 10;

/// A handshake ends within so many timeouts, however many options it has.
const TIMEOUTS_MAX: Nanos = 60;
/// Block statuses of a connection that are under way: no more requests are taken meanwhile. Each
/// may take the file system long, and costs its client nothing.
const STATUSES_MAX: u32 = 16;

/// Whether TLS is spoken (section "TLS support").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NbdTls {
    /// Not: mode NOTLS.
    #[default]
    Refused,
    /// By clients that ask for it: mode OPTIONALTLS.
    Offered,
    /// By all: mode FORCEDTLS.
    Required,
    /// The same, but the server has nothing to speak it by before its next start.
    Awaited,
}

/// What a connection may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NbdSettings {
    /// Requests whose reply is not sent yet: no more are received meanwhile.
    pub in_flight_max: u16,
    /// Until the first option must be here, each next one, or the transmission phase have begun.
    pub handshake_timeout: Nanos,
    /// Whether TLS is spoken.
    pub tls: NbdTls,
}

/// Work for the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NbdOp {
    /// Say which exports there are behind [`NbdServer::listed_to`]: [`NbdServer::list`], before the
    /// next step.
    List,
    /// Say what the export of the name [`NbdServer::asked_name`] is: [`NbdServer::found`], before
    /// the next step; and, where [`NbdServer::bitmaps_asked`] says so then, which dirty bitmaps it
    /// has: [`NbdServer::bitmaps`], when that is known.
    Find,
    /// Data of a write comes: say with [`NbdServer::prepared`] when there is memory for it.
    Prepare {
        /// The request.
        tag: Tag,
        /// Bytes.
        len: u32,
        /// All of them are staged already.
        staged: bool,
    },
    /// A request is here with all its data: [`NbdServer::complete`] it.
    Execute {
        /// The request.
        tag: Tag,
    },
    /// An option was refused for that, which the user of the server wants to know.
    Refused(FatalError),
    /// The connection ends.
    Fatal(FatalError),
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NbdAnswer {
    /// Well, with so much data to the client.
    Done {
        /// Bytes: all of what is read, or the chunks of a [`StatusReply`](crate::StatusReply).
        data_len: u32,
    },
    /// Not.
    Failed(NbdError),
}

/// What replies look like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReplyForm {
    #[default]
    Simple,
    Structured,
    Extended,
}

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The client flags are next.
    Greeted,
    /// Options are.
    Options,
    /// The driver says what there is.
    Asked,
    /// The client is told that TLS begins: nothing may come before.
    AwaitsTls,
    /// Requests are.
    Transmission,
    /// The client has ended the session: what is under way is still answered.
    Disconnected,
    /// Nothing more is received or sent.
    Ended,
}

/// A request whose reply is not sent.
#[derive(Clone, Copy, Debug)]
struct RequestSlot {
    cookie: u64,
    offset: u64,
    /// Of one that was refused at once: none that the driver sees.
    request: Option<NbdRequest>,
    answer: Option<NbdAnswer>,
}

/// The server's end of one NBD connection.
///
/// Every tag that an [`NbdOp`] named ends with [`Transmit::release`]; a request that the machine
/// refuses itself never shows. While memory is awaited for the data of a write, or as many
/// requests are under way as may be, [`Machine::recv_plan`] wants nothing.
#[derive(Debug)]
pub struct NbdServer {
    settings: NbdSettings,
    phase: Phase,
    deadline: Option<Nanos>,
    /// No option moves the deadline behind this.
    handshake_ends: Nanos,
    /// The client takes an answer to NBD_OPT_EXPORT_NAME without zeros.
    no_zeroes: bool,
    form: ReplyForm,
    /// What comes is in TLS.
    is_secure: bool,
    /// The metadata contexts that were selected, and the export by the name that the client used.
    selected: Option<(String, Arc<[NbdContext]>)>,
    /// Those of the export that is served.
    contexts: Arc<[NbdContext]>,
    options: u32,
    /// The option whose data arrives.
    option: OptionHeader,
    asked: options::OptionAsked,
    /// The last export of a list that goes on when what was told of it is sent.
    listed_to: Option<String>,
    /// How the question stands which dirty bitmaps there are.
    bitmaps: contexts::BitmapsState,
    export: Option<NbdExport>,
    inbound: Inbound,
    /// The last payload was large.
    is_bulk: bool,
    slots: Vec<RequestSlot>,
    free: Vec<Tag>,
    /// Block statuses that are not completed.
    statuses: u32,
    /// Tags of requests that are answered, in order.
    answered: VecDeque<Tag>,
    is_shut_down: bool,
    /// What is staged waits until replies are sent.
    is_held: bool,
    /// What goes before everything else: of the handshake.
    control: Vec<u8>,
    control_sent: usize,
}

impl NbdServer {
    /// The machine of a connection accepted at `now`.
    pub fn new(settings: NbdSettings, now: Nanos) -> NbdServer {
        assert!(settings.in_flight_max > 0);
        let greeting = Greeting {
            magic: NBD_MAGIC.into(),
            option_magic: OPTION_MAGIC.into(),
            flags: (flags::FIXED_NEWSTYLE | flags::NO_ZEROES).into(),
        };
        NbdServer {
            settings,
            phase: Phase::Greeted,
            deadline: Some(now.saturating_add(settings.handshake_timeout)),
            handshake_ends: now.saturating_add(settings.handshake_timeout * TIMEOUTS_MAX),
            no_zeroes: false,
            form: ReplyForm::Simple,
            is_secure: false,
            selected: None,
            contexts: Arc::default(),
            options: 0,
            option: OptionHeader::default(),
            asked: options::OptionAsked::default(),
            listed_to: None,
            bitmaps: contexts::BitmapsState::default(),
            export: None,
            inbound: Inbound::default(),
            is_bulk: false,
            slots: Vec::new(),
            free: Vec::new(),
            statuses: 0,
            answered: VecDeque::new(),
            is_shut_down: false,
            is_held: false,
            control: greeting.as_bytes().to_vec(),
            control_sent: 0,
        }
    }

    /// The export that is served, once the transmission phase has begun.
    pub fn export(&self) -> Option<&NbdExport> {
        self.export.as_ref()
    }

    /// The export has another size, or may be written or not, from now on.
    pub fn set_export(&mut self, export: NbdExport) {
        self.export = Some(export);
    }

    /// Requests whose reply is not sent.
    pub fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// From now on options and requests are refused, since the server, or the export, ends.
    pub fn shut_down(&mut self) {
        self.is_shut_down = true;
    }

    /// Ends the connection without another word.
    pub fn end(&mut self) {
        self.phase = Phase::Ended;
        self.deadline = None;
        self.inbound.discard();
        self.control.clear();
        self.control_sent = 0;
    }

    /// Whether requests are next in the stream.
    fn is_serving(&self) -> bool {
        self.phase == Phase::Transmission
    }

    /// Whether nothing more is taken before replies are sent: a client that does not read them
    /// gets no more made.
    fn is_full(&self) -> bool {
        let is_full = match self.phase {
            Phase::Transmission => {
                self.in_flight() >= self.settings.in_flight_max.into()
                    || self.statuses >= STATUSES_MAX
            }
            Phase::Greeted => false,
            _ => !self.control.is_empty(),
        };
        is_full && self.inbound.is_at_header()
    }

    #[cold]
    fn fail(&mut self, error: FatalError) -> NbdOp {
        self.end();
        NbdOp::Fatal(error)
    }
}

impl Machine for NbdServer {
    type Op = NbdOp;

    fn tags_max(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    fn recv_plan(&self) -> RecvPlan {
        let direct = self.inbound.direct();
        let waits = self.inbound.is_blocked()
            || self.is_full()
            || matches!(
                self.phase,
                Phase::Asked | Phase::AwaitsTls | Phase::Disconnected
            );
        let stage_max = match self.phase {
            _ if waits => 0,
            Phase::Transmission if self.is_bulk => self.header_len() as u32,
            Phase::Transmission => STAGE_LARGE,
            _ => STAGE_HANDSHAKE,
        };
        RecvPlan { direct, stage_max }
    }

    #[inline]
    fn on_direct(&mut self, len: u32) {
        self.inbound.on_direct(len);
    }

    #[inline]
    fn poll_step(&mut self, now: Nanos, staged: &[u8], at: &mut usize) -> Option<Step<NbdOp>> {
        loop {
            if matches!(self.phase, Phase::Ended | Phase::Disconnected) {
                *at = staged.len();
                return None;
            }
            if self.phase == Phase::AwaitsTls {
                return self.before_tls(&staged[*at..]);
            }
            self.is_held = self.is_full();
            if self.is_held {
                return None;
            }
            if self.phase == Phase::Asked {
                return self.goes_on().map(Step::Op);
            }
            let op = match self.inbound.walk(staged, at) {
                Walk::Header => {
                    let (used, op) = match self.phase {
                        Phase::Transmission => self.request(&staged[*at..])?,
                        Phase::Greeted => self.client_flags(&staged[*at..])?,
                        _ => self.option(&staged[*at..])?,
                    };
                    *at += used;
                    op
                }
                Walk::More => return None,
                Walk::Step(step) => return Some(step),
                Walk::Text { .. } => self.option_data(now),
                Walk::Data { tag, .. } => Some(NbdOp::Execute { tag }),
            };
            if let Some(op) = op {
                return Some(Step::Op(op));
            }
        }
    }

    #[inline]
    fn has_step(&self) -> bool {
        self.is_held && !self.is_full()
    }

    #[inline]
    fn is_blocked_on(&self, tag: Tag) -> bool {
        self.inbound.is_blocked_on(tag)
    }

    fn on_digest(&mut self, _: Tag, _: u32) {
        unreachable!("NBD has no digests");
    }

    #[inline]
    fn has_transmit(&self) -> bool {
        !self.control.is_empty() || (!self.answered.is_empty() && self.phase != Phase::Ended)
    }

    #[inline]
    fn poll_transmit(&mut self, out: &mut impl Transmit) {
        if self.phase == Phase::Ended {
            // Nothing is sent any more, and no memory is kept for it.
            while let Some(tag) = self.next_answered() {
                out.release(tag);
            }
        }
        if !self.send_control(out) {
            return;
        }
        while let Some(&tag) = self.answered.front() {
            if !out.has_room() {
                return;
            }
            self.send_reply(tag, out);
            let tag = self.next_answered();
            out.release(tag.expect("it was looked at"));
        }
    }

    fn is_finished(&self) -> bool {
        match self.phase {
            Phase::Ended => self.control.is_empty(),
            Phase::Disconnected => self.in_flight() == 0 && self.control.is_empty(),
            _ => false,
        }
    }

    fn deadline(&self) -> Option<Nanos> {
        self.deadline
    }

    fn on_deadline(&mut self, now: Nanos) {
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            self.end();
        }
    }
}

/// Nothing follows a payload.
const NO_TAIL: Tail = Tail {
    pad: 0,
    digest: None,
};

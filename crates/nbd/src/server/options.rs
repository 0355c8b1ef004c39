//! The handshake: client flags, options and what is replied to them.

use machine::{Nanos, Step, Tag};
use wire::nbd::{
    EXPORT_ZEROES, ExportAnswer, InfoExport, OPTION_MAGIC, OPTION_REPLY_MAGIC, OptionHeader,
    OptionReply, handshake_flags as flags, info_type, nbd_option as option, option_reply as reply,
};
use zerocopy::{FromBytes, IntoBytes};

use super::{NO_TAIL, NbdOp, NbdServer, NbdTls, Phase, ReplyForm};
use crate::context::{CONTEXTS_MAX, ContextsAsked};
use crate::error::FatalError;
use crate::export::NbdExport;
use crate::option::{InfoAsked, contexts_asked, info_asked, text};

/// Data of an option that is looked at: an export's name and some queries.
const OPTION_BYTES_MAX: u32 = 16 << 10;
/// Data of an option that is passed over.
const SKIPPED_BYTES_MAX: u32 = 1 << 20;
/// Bytes of a list that are made at a time.
const LIST_BYTES_MAX: usize = 16 << 10;
/// Options of one handshake: a client may ask about many exports.
const OPTIONS_MAX: u32 = 4096;

/// What the driver is asked, and for what.
#[derive(Debug, Default)]
pub(super) enum OptionAsked {
    #[default]
    Nothing,
    /// NBD_OPT_EXPORT_NAME.
    Name(String),
    /// NBD_OPT_INFO and NBD_OPT_GO.
    Info(InfoAsked),
    /// NBD_OPT_LIST_META_CONTEXT and NBD_OPT_SET_META_CONTEXT.
    Contexts(ContextsAsked),
}

impl NbdServer {
    /// The name of the export that is asked for; empty for the default one.
    pub fn asked_name(&self) -> &str {
        match &self.asked {
            OptionAsked::Nothing => "",
            OptionAsked::Name(name) => name,
            OptionAsked::Info(InfoAsked { name, .. })
            | OptionAsked::Contexts(ContextsAsked { name, .. }) => name,
        }
    }

    /// The export behind which a list goes on; `None` where it begins.
    pub fn listed_to(&self) -> Option<&str> {
        self.listed_to.as_deref()
    }

    /// These exports there are, name and description: the answer to [`NbdOp::List`]. What is too
    /// much to be held at a time is asked for later.
    pub fn list<'e>(&mut self, exports: impl Iterator<Item = (&'e str, &'e str)>) {
        self.listed_to = None;
        for (name, description) in exports {
            if self.control.len() >= LIST_BYTES_MAX {
                return;
            }
            self.listed_to = Some(name.to_owned());
            let len = (name.len() as u32).to_be_bytes();
            let data = [&len, name.as_bytes(), description.as_bytes()];
            self.reply_parts(reply::SERVER, &data);
        }
        self.listed_to = None;
        self.acknowledge();
        self.phase = Phase::Options;
    }

    /// The export that was asked for, if the client may have it: the answer to [`NbdOp::Find`].
    /// Whether it is served from now on. An error is told to the client, or ends the connection.
    ///
    /// # Errors
    /// The connection ends: there is no other way to tell the client.
    pub fn found(&mut self, export: Option<NbdExport>) -> Result<bool, FatalError> {
        self.phase = Phase::Options;
        let asked = std::mem::take(&mut self.asked);
        let Some(export) = export else {
            if let OptionAsked::Name(_) = asked {
                // Section "Option types": the session ends.
                self.end();
                return Err(FatalError::NoExport);
            }
            self.refuse_option(reply::ERR_UNKNOWN, "there is no such export");
            return Ok(false);
        };
        match asked {
            OptionAsked::Nothing => {}
            OptionAsked::Name(name) => {
                self.answer_name(&export);
                self.begin_transmission(&name, export);
            }
            OptionAsked::Info(asked) => {
                self.tell_info(&asked, &export);
                self.acknowledge();
                if self.option.option.get() == option::GO {
                    self.begin_transmission(&asked.name, export);
                }
            }
            OptionAsked::Contexts(asked) => self.contexts_of_export(asked),
        }
        Ok(self.is_serving())
    }

    fn begin_transmission(&mut self, name: &str, export: NbdExport) {
        let selected = self.selected.take().filter(|(of, _)| of == name);
        self.contexts = selected.map(|(_, contexts)| contexts).unwrap_or_default();
        self.export = Some(export);
        self.phase = Phase::Transmission;
        self.deadline = None;
        // The data of options is needed no more.
        self.inbound = Default::default();
    }

    fn takes_chunks(&self) -> bool {
        self.form != ReplyForm::Simple
    }

    fn answer_name(&mut self, export: &NbdExport) {
        let answer = ExportAnswer {
            size: export.size_bytes.into(),
            flags: export.flags(self.takes_chunks()).into(),
        };
        self.control.extend_from_slice(answer.as_bytes());
        if !self.no_zeroes {
            self.control.extend_from_slice(&[0; EXPORT_ZEROES]);
        }
    }

    fn tell_info(&mut self, asked: &InfoAsked, export: &NbdExport) {
        let info = InfoExport {
            kind: info_type::EXPORT.into(),
            size: export.size_bytes.into(),
            flags: export.flags(self.takes_chunks()).into(),
        };
        self.reply(reply::INFO, info.as_bytes());
        // A client that does not ask for it may send what is refused (section "Size
        // constraints"); it is told all the same.
        self.reply(reply::INFO, export.block_size().as_bytes());
        let texts = [
            (asked.wants_name, info_type::NAME, &export.name),
            (
                asked.wants_description && !export.description.is_empty(),
                info_type::DESCRIPTION,
                &export.description,
            ),
        ];
        for (_, kind, text) in texts.into_iter().filter(|(is_wanted, ..)| *is_wanted) {
            self.reply_parts(reply::INFO, &[&kind.to_be_bytes(), text.as_bytes()]);
        }
    }

    /// The client flags (section "Newstyle negotiation"): 32 bits, of which those may be set that
    /// were offered.
    pub(super) fn client_flags(&mut self, bytes: &[u8]) -> Option<(usize, Option<NbdOp>)> {
        let bytes = bytes.first_chunk::<4>()?;
        let set = u32::from_be_bytes(*bytes);
        if set & !u32::from(flags::FIXED_NEWSTYLE | flags::NO_ZEROES) != 0 {
            return Some((0, Some(self.fail(FatalError::ClientFlags(set)))));
        }
        self.no_zeroes = set & u32::from(flags::NO_ZEROES) != 0;
        self.phase = Phase::Options;
        Some((bytes.len(), None))
    }

    /// The header of an option.
    pub(super) fn option(&mut self, bytes: &[u8]) -> Option<(usize, Option<NbdOp>)> {
        let (header, _) = OptionHeader::read_from_prefix(bytes).ok()?;
        let used = size_of::<OptionHeader>();
        let len = header.len.get();
        self.options += 1;
        self.option = header;
        if header.option.get() == option::SET_META_CONTEXT {
            // Also where it fails.
            self.selected = None;
        }
        let wrong = if header.magic.get() != OPTION_MAGIC {
            FatalError::OptionMagic
        } else if self.options > OPTIONS_MAX {
            FatalError::TooManyOptions
        } else if len > SKIPPED_BYTES_MAX {
            FatalError::OptionTooLong(len)
        } else if len > OPTION_BYTES_MAX && header.option.get() == option::EXPORT_NAME {
            FatalError::ExportName
        } else {
            if len > OPTION_BYTES_MAX {
                self.inbound.skip(len, NO_TAIL);
                self.refuse_option(reply::ERR_TOO_BIG, "the option has too much data");
            } else {
                self.inbound.begin_text(len, NO_TAIL);
            }
            return Some((used, None));
        };
        Some((used, Some(self.fail(wrong))))
    }

    /// All of an option is here.
    pub(super) fn option_data(&mut self, now: Nanos) -> Option<NbdOp> {
        let kind = self.option.option.get();
        // A client that asks about many exports is still on its way.
        let next = now.saturating_add(self.settings.handshake_timeout);
        self.deadline = Some(next.min(self.handshake_ends));
        if self.is_shut_down && kind != option::ABORT {
            if kind == option::EXPORT_NAME {
                return Some(self.fail(FatalError::NoExport));
            }
            self.refuse_option(reply::ERR_SHUTDOWN, "the server ends");
            return None;
        }
        let is_for_clear = matches!(kind, option::STARTTLS | option::ABORT);
        let requires_tls = matches!(self.settings.tls, NbdTls::Required | NbdTls::Awaited);
        if requires_tls && !self.is_secure && !is_for_clear {
            if kind == option::EXPORT_NAME {
                return Some(self.fail(FatalError::TlsRequired));
            }
            self.refuse_option(reply::ERR_TLS_REQD, "TLS is required: begin with STARTTLS");
            return None;
        }
        match kind {
            option::EXPORT_NAME => {
                let name = text(self.inbound.text()).map(str::to_owned);
                let name = name.filter(|_| self.form != ReplyForm::Extended);
                let Some(name) = name else {
                    return Some(self.fail(FatalError::ExportName));
                };
                Some(self.ask(OptionAsked::Name(name)))
            }
            option::ABORT => {
                // The client ends the session, and its data is of no interest.
                self.acknowledge();
                self.phase = Phase::Disconnected;
                None
            }
            option::INFO | option::GO => {
                let asked = info_asked(self.inbound.text());
                self.ask_or_refuse(asked.map(OptionAsked::Info))
            }
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                let sets = kind == option::SET_META_CONTEXT;
                let asked = contexts_asked(self.inbound.text(), sets);
                let asked = asked.filter(|_| self.takes_chunks());
                if asked.as_ref().is_some_and(ContextsAsked::is_too_much) {
                    let why = format!("more than {CONTEXTS_MAX} metadata contexts are selected");
                    self.refuse_option(reply::ERR_TOO_BIG, &why);
                    return None;
                }
                self.ask_or_refuse(asked.map(OptionAsked::Contexts))
            }
            _ => self.option_without_data(kind),
        }
    }

    /// Options that have no data, and those that there are not.
    fn option_without_data(&mut self, kind: u32) -> Option<NbdOp> {
        let is_known = matches!(
            kind,
            option::LIST | option::STARTTLS | option::STRUCTURED_REPLY | option::EXTENDED_HEADERS
        );
        if is_known && !self.inbound.text().is_empty() {
            self.refuse_option(reply::ERR_INVALID, "the option has no data");
            return None;
        }
        match kind {
            option::LIST => {
                self.phase = Phase::Asked;
                return Some(NbdOp::List);
            }
            option::STARTTLS => return self.start_tls(),
            option::STRUCTURED_REPLY if self.form == ReplyForm::Extended => {
                self.refuse_option(reply::ERR_EXT_HEADER_REQD, "headers are extended already");
            }
            option::STRUCTURED_REPLY => {
                self.form = ReplyForm::Structured;
                self.acknowledge();
            }
            option::EXTENDED_HEADERS => {
                self.form = ReplyForm::Extended;
                self.acknowledge();
            }
            _ => self.refuse_option(reply::ERR_UNSUP, "there is no such option"),
        }
        None
    }

    /// NBD_OPT_STARTTLS: its answer is the last that goes in the clear, and what was negotiated
    /// before counts no more (section "TLS support").
    #[cold]
    fn start_tls(&mut self) -> Option<NbdOp> {
        if self.settings.tls == NbdTls::Refused {
            self.refuse_option(reply::ERR_POLICY, "TLS is not offered here");
        } else if self.settings.tls == NbdTls::Awaited {
            let why = "TLS is spoken here from the next start of weft on";
            self.refuse_option(reply::ERR_POLICY, why);
            return Some(NbdOp::Refused(FatalError::TlsAwaited));
        } else if self.is_secure || self.option.len.get() > 0 {
            let why = "STARTTLS has no data, and comes once";
            self.refuse_option(reply::ERR_INVALID, why);
        } else {
            self.acknowledge();
            (self.form, self.selected) = (ReplyForm::Simple, None);
            self.phase = Phase::AwaitsTls;
        }
        None
    }

    /// What is staged between NBD_OPT_STARTTLS and TLS: the client sends nothing before it has
    /// the answer, so no byte of that may pass for one that came in TLS.
    #[cold]
    pub(super) fn before_tls(&mut self, staged: &[u8]) -> Option<Step<NbdOp>> {
        let is_quiet = staged.is_empty();
        (!is_quiet).then(|| Step::Op(self.fail(FatalError::BehindStartTls)))
    }

    /// Whether TLS is to begin as soon as everything was sent.
    pub fn awaits_tls(&self) -> bool {
        self.phase == Phase::AwaitsTls
    }

    /// What comes from now on has come in TLS.
    pub fn tls_begun(&mut self) {
        assert!(self.awaits_tls(), "it was announced");
        self.phase = Phase::Options;
        self.is_secure = true;
    }

    fn ask(&mut self, asked: OptionAsked) -> NbdOp {
        self.asked = asked;
        self.phase = Phase::Asked;
        NbdOp::Find
    }

    fn ask_or_refuse(&mut self, asked: Option<OptionAsked>) -> Option<NbdOp> {
        if asked.is_none() {
            self.refuse_option(
                reply::ERR_INVALID,
                "the option is malformed or out of place",
            );
        }
        asked.map(|asked| self.ask(asked))
    }

    pub(super) fn acknowledge(&mut self) {
        self.reply(reply::ACK, &[]);
    }

    fn refuse_option(&mut self, kind: u32, why: &str) {
        self.reply(kind, why.as_bytes());
    }

    fn reply(&mut self, kind: u32, data: &[u8]) {
        self.reply_parts(kind, &[data]);
    }

    pub(super) fn reply_parts(&mut self, kind: u32, data: &[&[u8]]) {
        let header = OptionReply {
            magic: OPTION_REPLY_MAGIC.into(),
            option: self.option.option,
            kind: kind.into(),
            len: (data.iter().map(|part| part.len()).sum::<usize>() as u32).into(),
        };
        self.control.extend_from_slice(header.as_bytes());
        for part in data {
            self.control.extend_from_slice(part);
        }
    }

    /// The tag whose reply was sent, or never will be.
    pub(super) fn next_answered(&mut self) -> Option<Tag> {
        let tag = self.answered.pop_front()?;
        self.free.push(tag);
        Some(tag)
    }
}

//! Authentication of a queue behind its Connect (Base 2.0, section 8.13.5).

use link::CommandMemory as Memory;
use machine::Tag;
use nvmf::dhchap::DhchapChoice;
use nvmf::dhchap::host::{Authentication, Next, RECEIVE_BYTES};
use nvmf::host::{Completion, Data};
use reactor::{Driver, must_fill_random};
use wire::nvme::authentication::{ASCR, ATR, AuthenticationCommand};
use wire::nvme::fabrics::nqn_text;

use crate::queue::QueuePhase;
use crate::{Error, Event, Queue};

impl Queue {
    /// The transaction that comes next: where the controller wants one, or the host wants
    /// it to prove itself.
    pub(crate) fn authentication(&self) -> Result<Option<Authentication>, Error> {
        let unusable = |why: &str| Error::Unusable(why.to_owned());
        let result = self.connected as u32;
        if result & ASCR != 0 && self.concatenation.is_none() {
            let why = "the controller wants authentication and TLS behind it (`--concat`)";
            return Err(unusable(why));
        }
        let is_wanted = result & (ATR | ASCR) != 0;
        if self.concatenation.is_some() && !is_wanted {
            let why = "the controller wants no authentication, by which a key for TLS is made \
                       (`--concat`)";
            return Err(unusable(why));
        }
        let Some(keys) = &self.params.dhchap else {
            let why = "the controller wants the host to authenticate, and it has no secret";
            return match is_wanted {
                true => Err(unusable(why)),
                false => Ok(None),
            };
        };
        if !is_wanted && keys.controller.is_none() {
            return Ok(None);
        }
        let data = &self.params.connect_data;
        let (hostnqn, subnqn) = (nqn_text(&data.hostnqn), nqn_text(&data.subnqn));
        let authentication = Authentication::new(
            (keys.clone(), DhchapChoice::default()),
            (hostnqn.unwrap_or_default(), subnqn.unwrap_or_default()),
            self.params.connect.qid,
        );
        Ok(Some(match self.concatenation {
            Some(kind) => authentication.concatenating(kind),
            None => authentication,
        }))
    }

    /// Does what comes next.
    pub(crate) fn authenticate<D: Driver>(&mut self, driver: &mut D, next: Next) -> Option<Event> {
        let (sqe, data, message) = match next {
            Next::Authenticated => return Some(self.live()),
            Next::Failed(why) => {
                let error = Error::Unusable(format!("authentication failed: {why}"));
                self.transport.fail(driver, error);
                return None;
            }
            Next::Receive => {
                let command = AuthenticationCommand::new(RECEIVE_BYTES);
                (command.encode_receive(), Data::In(RECEIVE_BYTES), None)
            }
            Next::Send(message) => {
                let len = message.len() as u32;
                let command = AuthenticationCommand::new(len);
                (command.encode_send(), Data::Out(len), Some(message))
            }
        };
        let (Data::In(len) | Data::Out(len)) = data else {
            unreachable!("both commands have data");
        };
        let Some(buf) = driver.pool().get(len) else {
            self.transport.fail(driver, Error::NoMemory);
            return None;
        };
        match &message {
            Some(message) => mem::copy_in(buf.range(), message),
            None => mem::zero(buf.range()),
        }
        let link = &mut self.transport.link;
        let tag = link.machine.submit(&sqe, data);
        let tag = tag.expect("a queue has room for one command");
        link.set_data(tag, Memory::owned(buf));
        self.transport.enter(QueuePhase::Authenticating(tag));
        self.transport.link.flush(driver);
        None
    }

    /// What is said besides where the connection ends before the transaction does: a controller
    /// of Linux that refuses a host may close the connection before its answer has gone.
    pub(crate) fn amid_authentication(&self, error: Error) -> Error {
        match error {
            Error::Socket(_) | Error::Closed if self.authentication.is_some() => {
                Error::Unusable(format!(
                    "{error} amid the authentication: most likely the controller refuses the \
                     host, as its secret (`--dhchap-secret-file`) is not the one that the \
                     controller has"
                ))
            }
            error => error,
        }
    }

    /// A message went, or came.
    pub(crate) fn on_authentication_completed<D: Driver>(
        &mut self,
        driver: &mut D,
        tag: Tag,
        completion: &Completion,
    ) -> Option<Event> {
        let memory = self.transport.link.take_data(tag);
        let status = completion.status;
        if !status.is_success() {
            let command = "authentication";
            self.transport
                .fail(driver, Error::Refused { command, status });
            return None;
        }
        let authentication = self.authentication.as_mut().expect("it is under way");
        let next = match authentication.is_receiving() {
            false => authentication.sent(),
            true => {
                let mut message = vec![0; RECEIVE_BYTES as usize];
                if let Some(range) = memory.range() {
                    mem::copy_out(range, &mut message);
                }
                authentication.received(&message, &mut must_fill_random)
            }
        };
        self.authenticate(driver, next)
    }
}

//! A queue with a driver of its own: one command at a time, waiting for each
//! answer.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use auth::psk::Psk;
use link::CommandMemory as Memory;
use machine::{Nanos, Tag};
use mem::Pool;
use nvmf::host::{Completion, Data};
use reactor::{Driver, Wait};
use wire::nvme::authentication::Concatenation;
use wire::nvme::fabrics::ConnectData;
use wire::nvme::{ConnectCommand, Sqe};

use crate::{Error, Event, HostIdentity, OfferedPsk, Queue, QueueParams, QueueSettings};

/// How long a command may take.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);

/// The data of a command.
#[derive(Debug)]
pub enum Payload<'a> {
    /// It has none.
    None,
    /// From the controller, up to so many bytes.
    In(&'a mut [u8]),
    /// To the controller.
    Out(&'a [u8]),
}

impl Payload<'_> {
    /// Memory for it, which holds what goes out, or zeros; `None` where `memory_max` leaves no
    /// room.
    pub(crate) fn memory(&self, pool: &Pool) -> Option<Memory> {
        Some(match self {
            Payload::None => Memory::default(),
            Payload::In(into) => {
                let len = into.len() as u32;
                let memory = Memory::from_pool(pool, len)?;
                memory.each_part(0, len, mem::zero);
                memory
            }
            Payload::Out(bytes) => {
                let memory = Memory::from_pool(pool, bytes.len() as u32)?;
                memory.put(0, bytes);
                memory
            }
        })
    }

    /// Copies `len` bytes at most of what came into `memory`.
    pub(crate) fn take(&mut self, memory: &Memory, len: usize) {
        if let Payload::In(into) = self
            && memory.has_bytes()
        {
            let len = into.len().min(len);
            memory.get(0, &mut into[..len]);
        }
    }
}

/// A queue whose commands are waited for, one at a time.
pub struct Caller<D> {
    pub(crate) driver: D,
    queue: Queue,
    out: Vec<reactor::Completion>,
    /// A command that no call waits for, until its answer came.
    posted: Option<Tag>,
    /// The answer to it.
    arrived: Option<Completion>,
}

impl<D: Driver> Caller<D> {
    /// Connects a queue; what Connect was answered.
    ///
    /// # Errors
    /// Where the connection fails or the controller refuses.
    pub fn open(mut driver: D, to: SocketAddr, params: QueueParams) -> Result<(Self, u64), Error> {
        let queue = Queue::open(&mut driver, to, params, 0)?;
        let mut caller = Caller::over(driver, queue);
        let connected = caller.connected()?;
        Ok((caller, connected))
    }

    /// The same, and the key that TLS is spoken by then: where the handshake ends by an identity
    /// of version 1, that of version 0 is said on another connection. Some targets know that one
    /// alone, and end a handshake at the first identity that they do not know.
    pub(crate) fn open_by_either_identity(
        mut driver: D,
        to: SocketAddr,
        mut params: QueueParams,
    ) -> Result<(Self, u64, Option<OfferedPsk>), Error> {
        let queue = Queue::open(&mut driver, to, params.clone(), 0)?;
        let mut caller = Caller::over(driver, queue);
        let connected = match caller.connected() {
            Err(Error::Socket(first)) if caller.queue.has_failed_in_handshake() => {
                caller.close()?;
                params.psk = params.psk.map(OfferedPsk::by_version_0);
                caller.queue = Queue::open(&mut caller.driver, to, params.clone(), 0)?;
                caller.connected().map_err(|second| match second {
                    Error::Socket(second) => Error::Socket(io::Error::other(format!(
                        "{first}; by the identity of version 0: {second}"
                    ))),
                    second => second,
                })
            }
            connected => connected,
        };
        Ok((caller, connected?, params.psk))
    }

    /// Connects a queue to make a key for TLS by its authentication, and closes it.
    pub(crate) fn make_key(
        mut driver: D,
        to: SocketAddr,
        params: QueueParams,
    ) -> Result<(D, Psk), Error> {
        let mut queue = Queue::open(&mut driver, to, params, 0)?;
        queue.concatenate(Concatenation::NewTlsPsk);
        let mut caller = Caller::over(driver, queue);
        caller.connected()?;
        let psk = caller.queue.generated_psk().cloned();
        let psk = psk.expect("a queue is not live without it");
        caller.close()?;
        Ok((caller.driver, psk))
    }

    fn over(driver: D, queue: Queue) -> Self {
        Caller {
            driver,
            queue,
            out: Vec::new(),
            posted: None,
            arrived: None,
        }
    }

    /// Waits for the answer to Connect.
    fn connected(&mut self) -> Result<u64, Error> {
        let connected = self.wait("answer to Connect", |event| match event {
            Event::Live(result) => Some(result),
            _ => None,
        });
        connected.map_err(|error| match error {
            Error::TimedOut { .. } => Error::TimedOut {
                waiting_for: self.queue.waits_for(),
            },
            error => error,
        })
    }

    /// Connects I/O queue 1 of the controller `cntlid`, which has been asked
    /// for one, with `entries` (at least 2) and without in-capsule data.
    ///
    /// # Errors
    /// Where the connection fails or the controller refuses.
    pub fn io(
        driver: D,
        to: SocketAddr,
        subnqn: &str,
        host: &HostIdentity,
        settings: impl Into<QueueSettings>,
        (cntlid, entries): (u16, u16),
    ) -> Result<Self, Error> {
        let params = QueueParams {
            settings: settings.into(),
            connect: ConnectCommand {
                recfmt: 0,
                qid: 1,
                sqsize: entries.saturating_sub(1),
                cattr: ConnectCommand::DISABLE_SQ_FLOW_CONTROL,
                kato_ms: 0,
            },
            connect_data: ConnectData::new(host.hostid, cntlid, subnqn, &host.hostnqn),
            in_capsule_max: 0,
            psk: host.psk.clone(),
            dhchap: host.dhchap.clone(),
        };
        Ok(Caller::open(driver, to, params)?.0)
    }

    /// Runs one command to its end. Fewer bytes than asked for leave the rest
    /// of the memory zeroed.
    ///
    /// # Errors
    /// Where the connection fails, or the controller refuses the command.
    pub fn command(
        &mut self,
        name: &'static str,
        sqe: &Sqe,
        mut payload: Payload<'_>,
    ) -> Result<Completion, Error> {
        let data = match &payload {
            Payload::None => Data::None,
            Payload::In(into) => Data::In(into.len() as u32),
            Payload::Out(bytes) => Data::Out(bytes.len() as u32),
        };
        let memory = payload.memory(self.driver.pool()).ok_or(Error::NoMemory)?;
        let tag = self
            .queue
            .submit(sqe, data, |_| memory)
            .ok_or(Error::Closed)?;
        self.queue.flush(&mut self.driver);
        let completion = self.wait(name, |event| match event {
            Event::Completed(done, completion) if done == tag => Some(completion),
            _ => None,
        })?;
        let memory = self.queue.take_memory(tag);
        if !completion.status.is_success() {
            return Err(Error::Refused {
                command: name,
                status: completion.status,
            });
        }
        payload.take(&memory, usize::MAX);
        Ok(completion)
    }

    /// Submits a command without data and returns at once, one at a time:
    /// [`Caller::idle`] has its answer.
    pub(crate) fn post(&mut self, sqe: &Sqe) -> Result<(), Error> {
        assert!(self.posted.is_none(), "one at a time");
        let tag = self.queue.submit(sqe, Data::None, |_| Memory::default());
        self.posted = Some(tag.ok_or(Error::Closed)?);
        self.queue.flush(&mut self.driver);
        Ok(())
    }

    /// The answer to what was posted, if it comes within `pause`.
    pub(crate) fn idle(&mut self, pause: Duration) -> Result<Option<Completion>, Error> {
        if self.arrived.is_none() {
            let until = self.driver.clock() + pause.as_nanos() as Nanos;
            self.turn(until)?;
            while let Some(event) = self.queue.next_event(&mut self.driver) {
                self.keep_posted_answer(event)?;
            }
        }
        Ok(self.arrived.take())
    }

    /// Keeps the answer to what was posted; others are passed on.
    fn keep_posted_answer(&mut self, event: Event) -> Result<Option<Event>, Error> {
        match event {
            Event::Down(error) => Err(error),
            Event::Completed(tag, completion) if self.posted == Some(tag) => {
                self.posted = None;
                self.arrived = Some(completion);
                Ok(None)
            }
            event => Ok(Some(event)),
        }
    }

    /// Turns the driver until `pick` finds what it wants.
    fn wait<T>(
        &mut self,
        what: &'static str,
        mut pick: impl FnMut(Event) -> Option<T>,
    ) -> Result<T, Error> {
        // Not the time of the last turn, which may be long ago.
        let deadline = self.driver.clock() + COMMAND_TIMEOUT.as_nanos() as Nanos;
        loop {
            while let Some(event) = self.queue.next_event(&mut self.driver) {
                let event = self.keep_posted_answer(event)?;
                if let Some(found) = event.and_then(&mut pick) {
                    return Ok(found);
                }
            }
            if self.driver.now() >= deadline {
                return Err(Error::TimedOut { waiting_for: what });
            }
            self.turn(deadline)?;
        }
    }

    /// Sends what there is to send, then hands what completes until `deadline`
    /// to the queue.
    pub(crate) fn turn(&mut self, deadline: Nanos) -> Result<(), Error> {
        // What came last may have asked for data.
        self.queue.flush(&mut self.driver);
        self.driver.poll(Wait::Until(deadline), &mut self.out)?;
        for completion in self.out.drain(..) {
            self.queue.on_completion(&mut self.driver, completion);
        }
        Ok(())
    }

    /// Closes the connection and waits for its end.
    pub(crate) fn close(&mut self) -> Result<(), Error> {
        self.queue.close(&mut self.driver);
        let deadline = self.driver.clock() + COMMAND_TIMEOUT.as_nanos() as Nanos;
        while !self.queue.is_closed() && self.driver.now() < deadline {
            self.turn(deadline)?;
            while self.queue.next_event(&mut self.driver).is_some() {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use auth::psk::PskHash;
    use mem::Budget;
    use reactor::{DriverConfig, EpollDriver};

    use super::*;
    use crate::Settings;

    #[test]
    fn queue_says_what_it_waits_for_as_far_as_it_has_come() {
        let silent = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let to = silent.local_addr().expect("it is bound");
        let key = Psk::new(PskHash::Sha256, |bytes| bytes.fill(7));
        for (psk, tls) in [(None, false), (Some(key), true)] {
            let pool = Pool::new(Budget::new(16 << 20)).expect("there is address space");
            let driver = EpollDriver::new(&DriverConfig::default(), pool);
            let mut driver = driver.expect("the kernel has epoll");
            let host = HostIdentity::new(None).expect("random bytes");
            let params = QueueParams {
                settings: Settings::default().into(),
                connect: ConnectCommand {
                    recfmt: 0,
                    qid: 0,
                    sqsize: 31,
                    cattr: 0,
                    kato_ms: 0,
                },
                connect_data: ConnectData::new(host.hostid, 0xffff, "nqn.a", &host.hostnqn),
                in_capsule_max: 0,
                psk: psk.map(Into::into),
                dhchap: None,
            };
            let queue = Queue::open(&mut driver, to, params, 0).expect("a socket can be made");
            assert_eq!(queue.waits_for(), "TCP connection");
            let mut caller = Caller {
                driver,
                queue,
                out: Vec::new(),
                posted: None,
                arrived: None,
            };
            while caller.queue.waits_for() == "TCP connection" {
                let soon = caller.driver.now() + 1_000_000_000;
                caller.turn(soon).expect("nothing has failed");
            }
            let waits_for = caller.queue.waits_for();
            assert_eq!(waits_for.contains("TLS"), tls, "{waits_for}");
            assert_eq!(waits_for.contains("ICReq"), !tls, "{waits_for}");
        }
    }
}

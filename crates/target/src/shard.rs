//! One reactor's share of the target: its listeners, connections and mail.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use machine::Nanos;
use nvmf::Via;
use reactor::{Completion, Driver, Handler};

use crate::connection::Connection;
use crate::placement::Placer;
use crate::report::Report;
use crate::shared::{ConnectionRef, Mail, Shared};
use crate::token::{ConnectionId, Subject};

/// How often deadlines of connections are looked at. Keep-alive and handshake
/// time-outs are counted in seconds, so this is fine enough, and an idle
/// target still sleeps.
const TICK: Nanos = 500_000_000;

/// Where new connections come from; the first reactor owns them.
pub struct Acceptor {
    pub listeners: Vec<TcpListener>,
    pub placer: Placer,
}

/// One entry of the connection table.
#[derive(Default)]
struct Entry {
    generation: u16,
    connection: Option<Box<Connection>>,
}

/// One reactor's share of the target.
pub struct Shard {
    number: usize,
    shared: Arc<Shared>,
    placer: Option<Placer>,
    listening: Vec<reactor::SocketId>,
    table: Vec<Entry>,
    free: Vec<u32>,
    dirty: Vec<u32>,
    open: usize,
    syncs: Vec<Option<store::Task>>,
    unsynced: u64,
    tick_at: Option<Nanos>,
    stopping: bool,
}

impl Shard {
    /// A shard with nothing to do yet; the one with an acceptor listens.
    pub fn new<D: Driver>(
        number: usize,
        shared: Arc<Shared>,
        acceptor: Option<Acceptor>,
        driver: &mut D,
    ) -> std::io::Result<Self> {
        let mut listening = Vec::new();
        let mut placer = None;
        if let Some(acceptor) = acceptor {
            placer = Some(acceptor.placer);
            for (n, listener) in acceptor.listeners.into_iter().enumerate() {
                listening.push(driver.add_listener(listener, Subject::Listener(n as u32).token())?);
            }
        }
        Ok(Shard {
            number,
            shared,
            placer,
            listening,
            table: Vec::new(),
            free: Vec::new(),
            dirty: Vec::new(),
            open: 0,
            syncs: Vec::new(),
            unsynced: 0,
            tick_at: None,
            stopping: false,
        })
    }

    /// Volumes that could not be synced at the end.
    pub fn unsynced(&self) -> u64 {
        self.unsynced
    }

    fn accepted<D: Driver>(&mut self, driver: &mut D, fd: OwnedFd, peer: SocketAddr) {
        let max = u64::from(self.shared.limits.connections_max);
        let open: u64 = (self.shared.load.iter())
            .map(|n| u64::from(n.load(Ordering::Relaxed)))
            .sum();
        if open >= max {
            tracing::warn!(%peer, max, "connection refused: connections_max reached");
            return;
        }
        let placer = self.placer.as_mut().expect("only the acceptor accepts");
        let shard = placer.place(reactor::incoming_cpu(&fd));
        // Counted here, so that a burst of connections is spread as well.
        self.shared.load[shard].fetch_add(1, Ordering::Relaxed);
        if shard == self.number {
            self.adopt(driver, fd, peer);
        } else {
            self.shared.send(shard, Mail::Adopt(fd, peer));
        }
    }

    fn adopt<D: Driver>(&mut self, driver: &mut D, fd: OwnedFd, peer: SocketAddr) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.table.push(Entry::default());
            (self.table.len() - 1) as u32
        });
        let entry = &mut self.table[index as usize];
        let id = ConnectionId {
            index,
            generation: entry.generation,
        };
        let connection = ConnectionRef {
            shard: self.number as u32,
            id,
        };
        let opened = driver.local_addr(&fd).and_then(|mut local| {
            local.set_ip(local.ip().to_canonical());
            let via = Via {
                connection: connection.pack(),
                local,
                peer,
            };
            let socket = driver.add_socket(fd)?;
            Ok(Connection::new(
                id,
                socket,
                via,
                self.shared.clone(),
                driver.now(),
            ))
        });
        match opened {
            Ok(connection) => {
                entry.connection = Some(Box::new(connection));
                self.open += 1;
                self.tick_at.get_or_insert(driver.now() + TICK);
                let stopping = self.stopping;
                self.with(driver, id, |c, d| {
                    if stopping {
                        c.close(d);
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%peer, %error, "connection dropped before it was served");
                self.free.push(index);
                self.shared.load[self.number].fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Runs `f` on a connection that is still the one meant.
    #[inline]
    fn with<D: Driver>(
        &mut self,
        driver: &mut D,
        id: ConnectionId,
        f: impl FnOnce(&mut Connection, &mut D),
    ) {
        let Some(entry) = self.table.get_mut(id.index as usize) else {
            return;
        };
        if entry.generation != id.generation {
            return;
        }
        let Some(connection) = entry.connection.as_deref_mut() else {
            return;
        };
        f(connection, driver);
        if !connection.dirty {
            connection.dirty = true;
            self.dirty.push(id.index);
        }
    }

    fn remove(&mut self, index: u32) {
        let entry = &mut self.table[index as usize];
        if let Some(mut connection) = entry.connection.take() {
            connection.leave();
        }
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(index);
        self.open -= 1;
        self.shared.load[self.number].fetch_sub(1, Ordering::Relaxed);
    }

    fn stop<D: Driver>(&mut self, driver: &mut D) {
        if std::mem::replace(&mut self.stopping, true) {
            return;
        }
        for socket in self.listening.drain(..) {
            driver.close(socket, Subject::Listener(0).token());
        }
        for entry in &mut self.table {
            if let Some(connection) = entry.connection.as_deref_mut() {
                connection.close(driver);
            }
        }
        // Every shard's connections end on their own; one shard syncs for all.
        if self.number == 0 {
            let volumes = self.shared.volumes.clone();
            for (n, volume) in volumes.iter().enumerate() {
                self.sync(driver, n as u32, |d, token| {
                    volume.start(store::Io::Flush, d, token)
                });
            }
        }
    }

    fn sync<D: Driver>(
        &mut self,
        driver: &mut D,
        volume: u32,
        step: impl FnOnce(&mut D, reactor::Token) -> store::Progress,
    ) {
        match step(driver, Subject::Sync(volume).token()) {
            store::Progress::Pending(task) => {
                let len = self.shared.volumes.len();
                self.syncs.resize_with(len, || None);
                self.syncs[volume as usize] = Some(task);
            }
            store::Progress::Done(Ok(())) => {}
            store::Progress::Done(Err(error)) => {
                let name = &self.shared.volumes[volume as usize].info().name;
                tracing::error!(volume = %name, %error, "volume not synced at the end");
                self.unsynced += 1;
            }
        }
    }

    fn synced<D: Driver>(&mut self, driver: &mut D, n: u32, result: std::io::Result<u32>) {
        let task = self.syncs[n as usize].take();
        let task = task.expect("a sync that completes was started");
        let volume = self.shared.volumes[n as usize].clone();
        self.sync(driver, n, |d, token| volume.resume(task, result, d, token));
    }
}

impl<D: Driver> Handler<D, Mail> for Shard {
    #[inline]
    fn on_completion(&mut self, driver: &mut D, completion: Completion) {
        match completion {
            Completion::Received { token, result } => {
                if let Subject::Recv(id) = Subject::of(token) {
                    self.with(driver, id, |c, d| c.on_received(result, d));
                }
            }
            Completion::Sent { token, result } => {
                if let Subject::Send(id) = Subject::of(token) {
                    self.with(driver, id, |c, d| c.on_sent(result, d));
                }
            }
            Completion::File { token, result } => match Subject::of(token) {
                Subject::File(id, tag) => {
                    self.with(driver, id, |c, d| c.on_file(tag, result, d));
                }
                Subject::Sync(n) => self.synced(driver, n, result),
                other => unreachable!("file work of {other:?}"),
            },
            Completion::Accepted { result, .. } => match result {
                Ok((fd, peer)) => self.accepted(driver, fd, peer),
                Err(error) => tracing::warn!(%error, "accept failed"),
            },
            Completion::Closed { token } => {
                if let Subject::Close(id) = Subject::of(token) {
                    self.with(driver, id, |c, _| c.on_closed());
                }
            }
            Completion::Connected { .. } => unreachable!("a target connects to nobody"),
        }
    }

    fn on_mail(&mut self, driver: &mut D, mail: Mail) {
        match mail {
            Mail::Adopt(fd, peer) => self.adopt(driver, fd, peer),
            Mail::Close(ConnectionRef { id, .. }) => self.with(driver, id, |c, d| c.close(d)),
            Mail::Report(to) => {
                // Who asked may have given up waiting.
                let _ = to.send(Report::here(driver));
            }
            Mail::Stop => self.stop(driver),
        }
    }

    /// Sends and receives for every connection that this turn touched, so
    /// that all its answers leave in one batch.
    #[inline]
    fn on_turn(&mut self, driver: &mut D) {
        let mut dirty = std::mem::take(&mut self.dirty);
        dirty.retain(|&index| {
            let Some(connection) = self.table[index as usize].connection.as_deref_mut() else {
                return false;
            };
            connection.on_turn(driver);
            // One that waits for memory is looked at again when something
            // happens, which is when memory comes free.
            connection.dirty = connection.is_waiting();
            let again = connection.dirty;
            if connection.is_gone() {
                self.remove(index);
            }
            again
        });
        self.dirty = dirty;
    }

    fn deadline(&self) -> Option<Nanos> {
        self.tick_at
    }

    fn on_deadline(&mut self, driver: &mut D, now: Nanos) {
        for index in 0..self.table.len() {
            let entry = &self.table[index];
            if entry.connection.is_some() {
                let id = ConnectionId {
                    index: index as u32,
                    generation: entry.generation,
                };
                self.with(driver, id, |c, _| c.on_tick(now));
            }
        }
        self.tick_at = (self.open > 0).then_some(now + TICK);
    }

    fn is_done(&self) -> bool {
        self.stopping && self.open == 0 && self.syncs.iter().all(Option::is_none)
    }
}

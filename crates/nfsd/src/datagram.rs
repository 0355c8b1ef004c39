//! Calls that come in datagrams: of MOUNT, the port mapper, the status monitor and RQUOTA, as far
//! as their answers are short. The sender of a datagram is not proved, and answers go where it says.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use machine::Nanos;
use nfs::connection::{DatagramCall, Procedure};
use store::fs::{FileSystem, Progress, Task};
use wire::mount3::mount_proc3;
use wire::nsm::sm_proc;
use wire::rpc::accept_stat;
use wire::rpcbind::{pmap_proc, rpcb_proc};

use crate::mount::{MountAround, MountCall};
use crate::offload::{CopyWork, WorkAround};
use crate::peer::Peer;
use crate::rpcbind::{PortmapCall, RpcProgram};
use crate::rquota::QuotaCall;
use crate::{Nfsd, nsm, rquota};

/// Calls of MOUNT that look at files at a time; more get no answer, and come again.
const MOUNTS_MAX: usize = 64;

/// What sends an answer.
pub type SendAnswer = Box<dyn FnOnce(Vec<u8>) + Send>;

/// A datagram that has come.
pub struct Datagram {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Where it says that it comes from.
    pub from: SocketAddr,
    /// Where it has come.
    pub local: SocketAddr,
    /// What sends the answer.
    pub answer: SendAnswer,
}

/// A MOUNT or UMNT that came so.
pub struct DatagramMount {
    call: MountCall,
    datagram: Option<Datagram>,
    fs: Option<Arc<dyn FileSystem>>,
    /// Counts them.
    _held: Arc<()>,
}

impl Nfsd {
    /// A datagram has come: it is answered, now or as work.
    pub fn take_datagram(&self, datagram: Datagram, (now, time): (Nanos, store::fs::Time)) {
        let call = match DatagramCall::read(&datagram.bytes) {
            Ok(call) => call,
            Err(answer) => {
                if let Some(answer) = answer {
                    (datagram.answer)(answer);
                }
                return;
            }
        };
        if !RpcProgram::of(call.program).is_some_and(RpcProgram::is_on_udp) {
            let answer = call.refused(accept_stat::PROG_UNAVAIL);
            return (datagram.answer)(answer);
        }
        let portmap = PortmapCall {
            nfsd: self,
            local: Some(datagram.local),
            peer: datagram.from.ip(),
            time,
        };
        let mut results = Vec::new();
        let (to, args) = (&mut results, call.args);
        let answered = match call.procedure {
            Procedure::Null => Ok(()),
            Procedure::Pmap(proc @ pmap_proc::PMAPPROC_GETPORT) => portmap.pmap(proc, args, to),
            Procedure::Rpcb(
                proc @ (rpcb_proc::RPCBPROC_GETADDR
                | rpcb_proc::RPCBPROC_GETVERSADDR
                | rpcb_proc::RPCBPROC_GETTIME),
            ) => portmap.rpcb(proc, args, to),
            Procedure::Nsm(proc @ (sm_proc::SM_NOTIFY | sm_proc::SM_STAT)) => {
                nsm::answer((self, datagram.from.ip()), proc, args, to)
            }
            Procedure::Rquota(procedure) | Procedure::ExtRquota(procedure) => {
                let asked = QuotaCall {
                    procedure,
                    is_extended: matches!(call.procedure, Procedure::ExtRquota(_)),
                    credential: &call.credential,
                    time,
                };
                let Some(peer) = self.named_peer(datagram.from, now) else {
                    return;
                };
                rquota::answer(asked, &peer, args, to)
            }
            Procedure::Mount3(
                proc @ (mount_proc3::MOUNTPROC3_MNT
                | mount_proc3::MOUNTPROC3_UMNT
                | mount_proc3::MOUNTPROC3_UMNTALL),
            ) => match MountCall::new(proc, args) {
                Ok(call) => return self.mount_later(call, datagram),
                Err(error) => Err(error),
            },
            // A list would make a large answer of a small call, sent to the address that it names.
            _ => return (datagram.answer)(call.refused(accept_stat::PROC_UNAVAIL)),
        };
        let answer = match answered {
            Ok(()) => call.results(&results),
            Err(_) => call.refused(accept_stat::GARBAGE_ARGS),
        };
        (datagram.answer)(answer);
    }

    /// What a datagram comes from; `None`: what rules ask of it is to be looked up, and known when
    /// the datagram comes again.
    fn named_peer(&self, from: SocketAddr, now: Nanos) -> Option<Peer> {
        let mut peer = Peer::new(self, 0, from);
        let address = peer.find_names(self, (now, now));
        address.into_iter().for_each(|of| self.client_names.ask(of));
        address.is_none().then_some(peer)
    }

    fn mount_later(&self, call: MountCall, datagram: Datagram) {
        if Arc::strong_count(&self.datagram_mounts) > MOUNTS_MAX {
            return;
        }
        self.work.add(CopyWork::Mount(Box::new(DatagramMount {
            call,
            datagram: Some(datagram),
            fs: None,
            _held: self.datagram_mounts.clone(),
        })));
    }
}

impl DatagramMount {
    /// As [`CopyWork::begin`].
    pub(crate) fn advance(&mut self, around: &mut WorkAround<'_>) -> Option<Task> {
        let datagram = self.datagram.as_ref()?;
        let call = DatagramCall::read(&datagram.bytes).ok()?;
        let peer = around.nfsd.named_peer(datagram.from, around.now)?;
        let mut results = Vec::new();
        let mut mount_around = MountAround {
            nfsd: around.nfsd,
            peer: &peer,
            files: around.files,
            token: around.token,
            time: around.time,
        };
        let waits = self
            .call
            .advance(call.args, &mut mount_around, &mut results);
        if let Some((fs, task)) = waits {
            self.fs = Some(fs);
            return Some(task);
        }
        let answer = call.results(&results);
        let datagram = self.datagram.take()?;
        (datagram.answer)(answer);
        None
    }

    /// As [`CopyWork::resume`].
    pub(crate) fn resume(
        &mut self,
        task: Task,
        result: io::Result<u32>,
        around: &mut WorkAround<'_>,
    ) -> Option<Task> {
        let fs = self.fs.as_ref()?;
        match fs.resume(task, result, around.files, around.token) {
            Progress::Pending(task) => Some(task),
            Progress::Done(result) => {
                self.call.take(result);
                self.advance(around)
            }
        }
    }
}

//! Datagrams of the programs beside NFSv3, where a listener has the port mapper: it is what
//! clients find the others by. They are few and small, so a thread for each address takes them,
//! and a reactor answers.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serve_nfs::{Datagram, OwnMail, RpcProgram};

use crate::shared::Shared;

/// How often it is looked where datagrams are to be taken.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Bytes of a call: its header with the longest credentials, and the longest path.
const CALL_BYTES_MAX: usize = 4096;

/// Takes datagrams for as long as the target is there.
pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<()> {
    let shared = Arc::downgrade(shared);
    let thread = thread::Builder::new().name("weft-datagrams".into());
    thread.spawn(move || keep_open(&shared)).map(drop)
}

/// Where datagrams are to be taken.
fn wanted(shared: &Shared) -> Vec<SocketAddr> {
    let ports = shared.state().program_ports();
    let has = |program| ports.iter().any(|(_, all)| all.has(program));
    if !has(RpcProgram::Portmap) {
        return Vec::new();
    }
    let takes = |programs: &serve_nfs::RpcPrograms| {
        let mut all = RpcProgram::ALL.into_iter();
        all.any(|program| program.is_on_udp() && programs.has(program))
    };
    let all = ports.iter().filter(|(_, programs)| takes(programs));
    all.map(|(address, _)| *address).collect()
}

fn keep_open(shared: &Weak<Shared>) {
    let mut threads: HashMap<SocketAddr, Option<JoinHandle<()>>> = HashMap::new();
    while let Some(now) = shared.upgrade().filter(|now| !now.engine.is_stopping()) {
        let wanted = wanted(&now);
        drop(now);
        // One that has ended was not wanted: it may be again.
        threads.retain(|address, thread| {
            wanted.contains(address) || thread.as_ref().is_some_and(|thread| !thread.is_finished())
        });
        for address in wanted {
            let is_new = !threads.contains_key(&address);
            if is_new {
                let thread = open(shared.clone(), address);
                if let Err(error) = &thread {
                    tracing::warn!(
                        %address,
                        %error,
                        "NFS: clients that ask the port mapper or MOUNT by UDP get no answer here: \
                         end what has the port, and restart weft"
                    );
                }
                threads.insert(address, thread.ok());
            }
        }
        thread::sleep(LOOK_EVERY);
    }
}

fn open(shared: Weak<Shared>, address: SocketAddr) -> io::Result<JoinHandle<()>> {
    let socket = Arc::new(UdpSocket::bind(address)?);
    socket.set_read_timeout(Some(LOOK_EVERY))?;
    let thread = thread::Builder::new().name("weft-datagram".into());
    thread.spawn(move || take(&shared, &socket, address))
}

fn take(shared: &Weak<Shared>, socket: &Arc<UdpSocket>, address: SocketAddr) {
    let mut buf = [0; CALL_BYTES_MAX];
    loop {
        let received = socket.recv_from(&mut buf);
        let Some(shared) = shared.upgrade() else {
            return;
        };
        if shared.engine.is_stopping() || !wanted(&shared).contains(&address) {
            return;
        }
        // Also a signal, the time, and an answer that could not be delivered end a wait.
        let Ok((len, from)) = received else {
            continue;
        };
        let to = socket.clone();
        let datagram = Datagram {
            bytes: buf[..len].to_vec(),
            from,
            local: address,
            // A client whose answer is lost calls again.
            answer: Box::new(move |bytes| drop(to.send_to(&bytes, from))),
        };
        shared.nfs.send(0, OwnMail::Datagram(Box::new(datagram)));
    }
}

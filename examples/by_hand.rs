//! Drives the two machines of an NVMe/TCP queue pair by hand, over a pipe in memory: the
//! host connects and reads a block of a disk that is a vector. No socket, no thread, no
//! clock. It prints every PDU that goes over the pipe.
//!
//! `cargo run --example by_hand`

#![forbid(unsafe_code)]

use std::sync::Arc;

use machine::{Machine, Step, Tag, Tail, Transmit};
use nvmf::command::{AnaState, Command, Geometry, Io, IoKind};
use nvmf::host::{Data, HostRole};
use nvmf::queue::{ControllerEnd as _, Done, InBandAuthentication, Op, Role};
use nvmf::tcp::controller;
use nvmf::tcp::host;
use wire::nvme::{ConnectCommand, Sqe, Status, io};

const BLOCK_BYTES: u32 = 512;
const BLOCK_COUNT: u64 = 1024;

fn main() {
    let block = read_block(5);
    assert_eq!(block, [5; BLOCK_BYTES as usize]);
    println!("the host has read block 5");
}

/// What the host reads of block `slba` of a disk of which every byte says its block.
fn read_block(slba: u64) -> Vec<u8> {
    let mut host = End::new("host", host::Qpair::new(host::Settings::default()));
    let settings = controller::Settings::default();
    let mut controller = End::new("controller", controller::Qpair::new(settings, 0));
    loop {
        controller.receive(&host.transmit());
        while let Some(op) = controller.next_op() {
            match op {
                Op::Prepare { tag, len, .. } => {
                    controller.hold(tag, vec![0; len as usize]);
                    controller.machine.prepared(tag);
                }
                Op::Execute { tag } => execute(&mut controller, tag),
                other => panic!("not of a host like this: {other:?}"),
            }
        }
        host.receive(&controller.transmit());
        while let Some(op) = host.next_op() {
            match op {
                host::Op::Ready => connect(&mut host),
                host::Op::Completed { tag, cqe } if cqe.data_len == 0 => {
                    assert_eq!(cqe.status, Status::SUCCESS, "Connect");
                    host.machine.attach(HostRole {
                        entries: 8,
                        in_capsule_max: 0,
                        flow_control_disabled: false,
                    });
                    host.release(tag);
                    let mut read = Sqe {
                        nsid: 1.into(),
                        ..Sqe::new(io::READ)
                    };
                    read.set_blocks(slba, 1);
                    let tag = host.machine.submit(&read, Data::In(BLOCK_BYTES));
                    host.hold(
                        tag.expect("a queue with room"),
                        vec![0; BLOCK_BYTES as usize],
                    );
                }
                host::Op::Completed { tag, cqe } => {
                    assert_eq!(cqe.status, Status::SUCCESS, "Read");
                    return host.release(tag);
                }
                host::Op::Fatal(error) => panic!("the connection ends: {error:?}"),
            }
        }
    }
}

/// Sends Connect of I/O queue 1, with 1,024 bytes of data that name the host and the subsystem.
fn connect(host: &mut End<host::Qpair>) {
    let connect = ConnectCommand {
        recfmt: 0,
        qid: 1,
        sqsize: 7,
        cattr: 0,
        kato_ms: 0,
    };
    let tag = host.machine.submit(&connect.encode(), Data::Out(1024));
    // A real controller looks at these bytes; the one below does not.
    host.hold(tag.expect("the first command"), vec![0; 1024]);
}

/// What a driver does for a controller: it gives memory, and executes.
fn execute(controller: &mut End<controller::Qpair>, tag: Tag) {
    let done = match *controller.machine.queue().command(tag) {
        Command::Connect(_) => {
            controller.machine.attach(Role {
                qid: 1,
                entries: 8,
                flow_control_disabled: false,
                authentication: InBandAuthentication::None,
                namespaces: Arc::new([Geometry {
                    nsid: 1,
                    block_shift: BLOCK_BYTES.trailing_zeros() as u8,
                    read_only: false,
                    ana: AnaState::Optimized,
                    instance: 0,
                    block_count: BLOCK_COUNT,
                }]),
            });
            Done::default()
        }
        Command::Io(Io {
            kind: IoKind::Read,
            offset,
            len,
            ..
        }) => {
            let blocks = (offset..offset + len).map(|at| (at / u64::from(BLOCK_BYTES)) as u8);
            controller.hold(tag, blocks.collect());
            Done {
                data_len: len as u32,
                ..Done::default()
            }
        }
        _ => Status::INVALID_OPCODE.into(),
    };
    controller.machine.complete(tag, done);
}

/// One side: a machine, the memory of its commands, and what it has received.
struct End<M> {
    name: &'static str,
    machine: M,
    memory: Vec<Vec<u8>>,
    staged: Vec<u8>,
    at: usize,
}

impl<M: Machine> End<M> {
    fn new(name: &'static str, machine: M) -> End<M> {
        End {
            name,
            machine,
            memory: Vec::new(),
            staged: Vec::new(),
            at: 0,
        }
    }

    fn hold(&mut self, tag: Tag, bytes: Vec<u8>) {
        let tag = usize::from(tag);
        self.memory
            .resize(self.memory.len().max(tag + 1), Vec::new());
        self.memory[tag] = bytes;
    }

    fn release(&mut self, tag: Tag) -> Vec<u8> {
        std::mem::take(&mut self.memory[usize::from(tag)])
    }

    /// Takes bytes as a driver does: the rest of a payload straight into its memory, as
    /// the plan says, and what follows into staging.
    fn receive(&mut self, mut bytes: &[u8]) {
        self.staged.drain(..self.at);
        self.at = 0;
        if let Some(direct) = self.machine.recv_plan().direct {
            let len = bytes.len().min(direct.len as usize);
            let (to, at) = (
                &mut self.memory[usize::from(direct.tag)],
                direct.offset as usize,
            );
            to[at..at + len].copy_from_slice(&bytes[..len]);
            self.machine.on_direct(len as u32);
            bytes = &bytes[len..];
        }
        self.staged.extend_from_slice(bytes);
    }

    /// The next operation that the received bytes make.
    fn next_op(&mut self) -> Option<M::Op> {
        loop {
            match self.machine.poll_step(0, &self.staged, &mut self.at)? {
                Step::Op(op) => return Some(op),
                Step::Place {
                    tag,
                    offset,
                    at,
                    len,
                    ..
                } => {
                    let (offset, at, len) = (offset as usize, at as usize, len as usize);
                    self.memory[usize::from(tag)][offset..offset + len]
                        .copy_from_slice(&self.staged[at..at + len]);
                }
                Step::Digest { .. } => unreachable!("no digests were agreed on"),
            }
        }
    }

    /// All that the machine sends now.
    fn transmit(&mut self) -> Vec<u8> {
        let mut wire = Wire {
            name: self.name,
            memory: &self.memory,
            bytes: Vec::new(),
        };
        self.machine.poll_transmit(&mut wire);
        wire.bytes
    }
}

/// Where a machine puts what it sends.
struct Wire<'a> {
    name: &'static str,
    memory: &'a [Vec<u8>],
    bytes: Vec<u8>,
}

impl Transmit for Wire<'_> {
    fn has_room(&self) -> bool {
        true
    }

    fn header_room(&self) -> usize {
        4096
    }

    fn header(&mut self, bytes: &[u8]) {
        println!(
            "{} sends PDU {:02x}h, {} bytes of header",
            self.name,
            bytes[0],
            bytes.len()
        );
        self.bytes.extend_from_slice(bytes);
    }

    fn payload(&mut self, tag: Tag, offset: u32, len: u32, tail: Tail) {
        assert_eq!(tail.bytes(), 0, "no digests were agreed on");
        println!("{} sends {len} bytes of data", self.name);
        let (from, to) = (offset as usize, (offset + len) as usize);
        self.bytes
            .extend_from_slice(&self.memory[usize::from(tag)][from..to]);
    }

    fn release(&mut self, _tag: Tag) {}
}

#[test]
fn a_block_arrives() {
    main();
}

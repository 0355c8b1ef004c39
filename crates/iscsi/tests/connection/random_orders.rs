//! Initiators that do what they may, in every order.

use proptest::prelude::*;

use super::*;

/// A command of a random initiator.
#[derive(Clone, Debug)]
enum Command {
    Read {
        lba: u8,
        blocks: u8,
        edtl: u32,
    },
    Write {
        lba: u8,
        blocks: u8,
        edtl: u32,
        immediate: u32,
        more: bool,
    },
    Ping {
        len: u16,
    },
    Ready,
    Reset,
}

fn command() -> impl Strategy<Value = Command> {
    let place = || (0..64u8, 0..48u8, -700..700i32);
    let edtl = |blocks: u8, extra: i32| (i32::from(blocks) * 512 + extra).max(0) as u32;
    prop_oneof![
        4 => place().prop_map(move |(lba, blocks, extra)| Command::Read {
            lba,
            blocks,
            edtl: edtl(blocks, if extra % 3 == 0 { extra } else { 0 }),
        }),
        6 => (place(), 0..4097u32, any::<bool>()).prop_map(
            move |((lba, blocks, extra), immediate, more)| Command::Write {
                lba,
                blocks,
                edtl: edtl(blocks, if extra % 3 == 0 { extra } else { 0 }),
                immediate,
                more,
            }
        ),
        1 => (0..4000u16).prop_map(|len| Command::Ping { len }),
        1 => Just(Command::Ready),
        1 => Just(Command::Reset),
    ]
}

fn any_keys() -> impl Strategy<Value = Negotiated> {
    (
        any::<(bool, bool, bool, bool, bool)>(),
        (512..9000u32, 512..9000u32, 512..9000u32, 0..4000u32),
        1..5u16,
    )
        .prop_map(|(flags, (recv, send, first, more), r2ts)| Negotiated {
            header_digest: flags.0,
            data_digest: flags.1,
            initial_r2t: flags.2,
            immediate_data: flags.3,
            error_recovery_level: u8::from(flags.4),
            max_recv_data_segment_length: recv,
            max_send_data_segment_length: send,
            first_burst_length: first,
            max_burst_length: first + more,
            max_outstanding_r2t: r2ts,
            ..Negotiated::default()
        })
}

/// What a random initiator knows of a command that is not answered.
struct Open {
    itt: u32,
    command: Command,
    data: Vec<u8>,
    come: Vec<u8>,
}

/// A random initiator, one target, and what lies on the wire between them.
struct World {
    peer: Peer,
    keys: Negotiated,
    random: Random,
    wire: VecDeque<u8>,
    open: Vec<Open>,
    stat_sn: u32,
    answered: usize,
    reset: Option<u32>,
}

impl World {
    fn new(keys: Negotiated, seed: u64) -> World {
        World {
            peer: Peer::live(keys),
            keys,
            random: Random::new(seed),
            wire: VecDeque::new(),
            open: Vec::new(),
            stat_sn: STAT_SN + 1,
            answered: 0,
            reset: None,
        }
    }

    /// Puts a command on the wire.
    fn start(&mut self, command: &Command) {
        let peer = &mut self.peer;
        let mut data = Vec::new();
        let bytes = match *command {
            Command::Read { lba, blocks, edtl } => {
                let cdb = cdb::read(lba.into(), blocks.into());
                peer.command(READ, cdb, edtl, &[])
            }
            Command::Ready => peer.command(NONE, cdb::TEST_UNIT_READY, 0, &[]),
            Command::Write {
                lba,
                blocks,
                edtl,
                immediate,
                more,
            } => {
                data = pattern(self.random.below(99), edtl as usize);
                let first = self.keys.first_burst_length.min(edtl);
                let now = match self.keys.immediate_data {
                    true => first
                        .min(immediate)
                        .min(self.keys.max_recv_data_segment_length),
                    false => 0,
                } as usize;
                let more = more && !self.keys.initial_r2t && (now as u32) < first;
                let flags = if more { WRITE_MORE } else { WRITE };
                let cdb = cdb::write(lba.into(), blocks.into());
                let mut bytes = peer.command(flags, cdb, edtl, &data[..now]);
                if more {
                    let len = 1 + self
                        .random
                        .below(self.keys.max_recv_data_segment_length.into());
                    let ids = (peer.itt, UNSOLICITED);
                    bytes.extend(peer.sequence(ids, &data, (now, first as usize), len as usize));
                }
                bytes
            }
            Command::Ping { len } => {
                peer.itt += 1;
                let len = u32::from(len).min(self.keys.max_recv_data_segment_length);
                data = pattern(3, len as usize);
                peer.pdus.nop_out(peer.itt, TAG_NONE, peer.cmd_sn, &data)
            }
            Command::Reset => {
                if self.reset.is_some() {
                    return;
                }
                peer.itt += 1;
                self.reset = Some(peer.itt);
                let ids = (peer.itt, peer.cmd_sn);
                let function = TaskFunction::LogicalUnitReset as u8;
                peer.pdus.function(ids, function, (TAG_NONE, 0))
            }
        };
        self.wire.extend(bytes);
        self.open.push(Open {
            itt: self.peer.itt,
            command: command.clone(),
            data,
            come: Vec::new(),
        });
    }

    /// Whether the window is open.
    fn may_start(&self) -> bool {
        let (_, max_cmd_sn) = self.peer.window();
        wire::iscsi::serial_distance(self.peer.cmd_sn, max_cmd_sn) >= 0 && self.open.len() < 20
    }

    /// Lets the target do something.
    fn turn(&mut self) {
        let (target, random) = (&mut self.peer.target, &mut self.random);
        let len = 1 + random.below(3000) as usize;
        target.end.receive(&mut self.wire, len);
        target.take_ops();
        if !target.starved.is_empty() && random.one_in(2) {
            target.feed(random.below(target.starved.len() as u64) as usize);
        }
        if !target.work.is_empty() && random.one_in(2) {
            target.execute(random.below(target.work.len() as u64) as usize);
        }
        if !target.functions.is_empty() && random.one_in(2) {
            target.manage(0);
        }
        if random.one_in(2) {
            target.transmit(&mut self.peer.out, 1 + random.below(5) as usize);
        }
        while let Some(pdu) = self.peer.pdus.next(&mut self.peer.out) {
            self.answer(&pdu);
        }
    }

    /// An answer, checked.
    fn answer(&mut self, pdu: &Pdu) {
        let itt = pdu.bhs.itt.get();
        let at = self.open.iter().position(|open| open.itt == itt);
        let at = at.expect("an answer to something that was asked");
        match pdu.bhs.opcode() {
            opcode::R2T => {
                let r2t: &R2t = pdu.bhs.cast();
                let len = 1 + self
                    .random
                    .below(self.keys.max_recv_data_segment_length.into())
                    as usize;
                let bytes = self.peer.data_for(r2t, &self.open[at].data, len);
                self.wire.extend(bytes);
                return;
            }
            opcode::DATA_IN => {
                let header: &DataIn = pdu.bhs.cast();
                let open = &mut self.open[at];
                assert_eq!(header.buffer_offset.get() as usize, open.come.len());
                assert!(pdu.data.len() <= self.keys.max_send_data_segment_length as usize);
                open.come.extend(&pdu.data);
                if header.flags & flags::STATUS == 0 {
                    return;
                }
            }
            _ => {}
        }
        let [_, _, _, _, a, b, c, d, ..] = pdu.bhs.specific20;
        assert_eq!(u32::from_be_bytes([a, b, c, d]), self.stat_sn, "StatSN");
        self.stat_sn = self.stat_sn.wrapping_add(1);
        let open = self.open.swap_remove(at);
        self.answered += 1;
        self.finished(&open, pdu);
    }

    fn finished(&mut self, open: &Open, pdu: &Pdu) {
        match open.command {
            Command::Read { lba, blocks, edtl } => {
                let len = (usize::from(blocks) * BLOCK).min(edtl as usize);
                assert_eq!(open.come.len(), len);
                let _ = lba;
            }
            Command::Write { blocks, edtl, .. } => {
                assert_eq!(response(pdu), GOOD);
                let len = u32::from(blocks) * 512;
                let expected = match len.checked_sub(edtl) {
                    Some(0) => (0, 0),
                    Some(over) => (flags::OVERFLOW, over),
                    None => (flags::UNDERFLOW, edtl - len),
                };
                assert_eq!(residual(pdu), expected);
            }
            Command::Ping { .. } => {
                let back = open
                    .data
                    .len()
                    .min(self.keys.max_send_data_segment_length as usize);
                assert_eq!(pdu.data, open.data[..back]);
            }
            Command::Ready => assert_eq!(response(pdu), GOOD),
            Command::Reset => {
                // What was sent before is over: nothing more comes of it.
                let reset = self.reset.take();
                let is_before = |open: &Open| open.itt < reset.expect("it was asked for");
                let is_ping = |open: &Open| matches!(open.command, Command::Ping { .. });
                self.open.retain(|open| !is_before(open) || is_ping(open));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn every_command_of_a_lawful_initiator_is_answered_once(
        keys in any_keys(),
        commands in proptest::collection::vec(command(), 1..40),
        seed in any::<u64>(),
    ) {
        let mut world = World::new(keys, seed);
        let mut left = commands.iter();
        let mut next = left.next();
        let mut rounds = 0;
        while next.is_some() || !world.open.is_empty() {
            rounds += 1;
prop_assert!(rounds < 20_000, "{} are open", world.open.len());
            if world.may_start() && world.random.one_in(3) && let Some(command) = next {
                world.start(command);
                next = left.next();
            }
            world.turn();
        }
        prop_assert!(world.peer.target.fatal.is_none());
        prop_assert_eq!(world.peer.in_flight(), 0);
        let (exp_cmd_sn, max_cmd_sn) = world.peer.window();
        prop_assert_eq!(max_cmd_sn, exp_cmd_sn.wrapping_add(7));
        prop_assert!(world.peer.target.refused.is_empty());
    }

    #[test]
    fn writes_land_where_they_belong(
        keys in any_keys(),
        writes in proptest::collection::vec((1..40u8, 0..4097u32, any::<bool>()), 1..6),
        seed in any::<u64>(),
    ) {
        let mut world = World::new(keys, seed);
        let mut lba = 0;
        let mut expected = world.peer.target.media.clone();
        for (blocks, immediate, more) in writes {
            let edtl = u32::from(blocks) * 512;
            world.start(&Command::Write { lba, blocks, edtl, immediate, more });
            let at = usize::from(lba) * BLOCK;
            let data = &world.open.last().expect("it was started").data;
            expected[at..at + data.len()].copy_from_slice(data);
            lba += blocks;
        }
        let mut rounds = 0;
        while !world.open.is_empty() {
            rounds += 1;
            prop_assert!(rounds < 20_000);
            world.turn();
        }
        prop_assert!(world.peer.target.media == expected);
    }
}

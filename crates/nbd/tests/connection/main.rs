//! A server's end of a connection, byte by byte.

mod dirty_bitmaps;
mod peer;
mod starttls;

mod handshake {
    use machine::Machine as _;
    use nbd::{FatalError, NbdOp};
    use wire::nbd::{
        handshake_flags, info_type, nbd_option as option, option_reply as reply, request_type,
    };

    use crate::peer::{DISK, Peer, context_data, export, go_data};

    #[test]
    fn server_speaks_first_and_offers_the_fixed_newstyle_handshake() {
        let mut peer = Peer::greeted(0);
        let mut greeting = b"NBDMAGICIHAVEOPT".to_vec();
        greeting.extend([0, 3]);
        assert_eq!(peer.sent(), greeting);
    }

    #[test]
    fn client_flags_that_were_not_offered_end_the_connection() {
        let mut peer = Peer::greeted(0);
        peer.send(&4u32.to_be_bytes());
        assert_eq!(peer.ops(), [NbdOp::Fatal(FatalError::ClientFlags(4))]);
        assert!(peer.is_finished());
    }

    #[test]
    fn export_of_a_name_is_told_with_zeros_unless_both_sides_do_without() {
        for (flags, zeros) in [(handshake_flags::FIXED_NEWSTYLE, 124), (3, 0)] {
            let mut peer = Peer::after_flags(flags);
            peer.option(option::EXPORT_NAME, b"disk");
            assert_eq!(peer.ops(), [NbdOp::Find]);
            assert_eq!(peer.end.machine.asked_name(), "disk");
            assert_eq!(peer.find(true), Ok(true));
            let mut answer = (1u64 << 20).to_be_bytes().to_vec();
            // Flags, flush, FUA, trim, zeroes, several connections, cache, fast zeroes.
            answer.extend(0b1101_0110_1101u16.to_be_bytes());
            answer.extend(vec![0; zeros]);
            assert_eq!(peer.sent(), answer);
        }
    }

    #[test]
    fn export_that_is_not_there_ends_a_connection_only_by_the_option_without_errors() {
        let mut peer = Peer::after_flags(3);
        peer.option(option::GO, &go_data("other", &[]));
        assert_eq!(peer.ops(), [NbdOp::Find]);
        assert_eq!(peer.find(false), Ok(false));
        assert_eq!(peer.reply().kind, reply::ERR_UNKNOWN);
        peer.option(option::EXPORT_NAME, b"other");
        assert_eq!(peer.ops(), [NbdOp::Find]);
        assert_eq!(peer.find(false), Err(FatalError::NoExport));
        assert!(peer.is_finished() && peer.sent().is_empty());
    }

    #[test]
    fn exports_are_listed_with_their_descriptions() {
        let mut peer = Peer::after_flags(3);
        peer.option(option::LIST, b"");
        assert_eq!(peer.ops(), [NbdOp::List]);
        let exports = [("disk", "of tests"), ("b", "")];
        peer.end.machine.list(exports.into_iter());
        let (first, second, last) = (peer.reply(), peer.reply(), peer.reply());
        assert_eq!(first.kind, reply::SERVER);
        assert_eq!(first.data, b"\0\0\0\x04diskof tests");
        assert_eq!(second.data, b"\0\0\0\x01b");
        assert_eq!((last.kind, last.option), (reply::ACK, option::LIST));
    }

    #[test]
    fn list_of_many_exports_is_made_in_parts_as_the_client_reads_it() {
        let names: Vec<String> = (0..100).map(|n| format!("{n:03}")).collect();
        let description = "d".repeat(1000);
        let mut peer = Peer::after_flags(3);
        peer.option(option::LIST, b"");
        let (mut parts, mut sent) = (0, Vec::new());
        while parts == 0 || peer.end.machine.listed_to().is_some() {
            assert_eq!(peer.ops(), [NbdOp::List]);
            let after = peer.end.machine.listed_to().map(str::to_owned);
            let rest = names.iter().filter(|name| Some(*name) > after.as_ref());
            peer.end
                .machine
                .list(rest.map(|name| (&**name, &*description)));
            if peer.end.machine.listed_to().is_some() {
                assert_eq!(peer.ops(), [], "no more is made before this is sent");
            }
            let part = peer.sent();
            assert!(part.len() < 18 << 10, "{}", part.len());
            sent.extend(part);
            parts += 1;
        }
        assert_eq!(sent.len(), 100 * (20 + 4 + 3 + 1000) + 20);
        assert_eq!(sent[sent.len() - 8..][..4], reply::ACK.to_be_bytes());
        assert!(parts > 5, "{parts}");
        peer.option(77, b"");
        assert_eq!(peer.ops(), []);
        assert_eq!(peer.reply().kind, reply::ERR_UNSUP);
    }

    #[test]
    fn export_is_told_with_its_block_sizes_and_what_else_is_asked_for() {
        let mut peer = Peer::after_flags(3);
        let wanted = [info_type::NAME, info_type::DESCRIPTION, 99];
        peer.option(option::INFO, &go_data("", &wanted));
        assert_eq!(peer.ops(), [NbdOp::Find]);
        assert_eq!(peer.find(true), Ok(false), "it is only asked about");
        let told: Vec<_> = (0..5).map(|_| peer.reply()).collect();
        assert_eq!(told[0].data[..2], [0, 0]);
        let sizes = [0, 3, 0, 0, 2, 0, 0, 0, 0x10, 0, 2, 0, 0, 0];
        assert_eq!(told[1].data, sizes, "512 bytes, 4 KiB, 32 MiB");
        assert_eq!(told[2].data, b"\0\x01disk");
        assert_eq!(told[3].data, b"\0\x02of tests");
        assert_eq!((told[4].kind, &told[4].data[..]), (reply::ACK, &b""[..]));
        assert!(peer.sent().is_empty());
    }

    #[test]
    fn read_only_export_offers_nothing_that_writes() {
        let mut peer = Peer::after_flags(3);
        peer.option(option::GO, &go_data("disk", &[]));
        let _ = peer.ops();
        let export = nbd::NbdExport {
            is_read_only: true,
            ..export()
        };
        assert_eq!(peer.end.machine.found(Some(export)), Ok(true));
        let flags = &peer.reply().data[10..];
        assert_eq!(flags, 0b0101_0000_1111u16.to_be_bytes());
    }

    #[test]
    fn options_that_are_wrong_are_refused_and_the_next_is_heard() {
        let mut long = 4097u32.to_be_bytes().to_vec();
        long.extend(vec![b'a'; 4097]);
        long.extend([0, 0]);
        let mut behind = go_data("disk", &[]);
        behind.push(0);
        let mut name_only = 9u32.to_be_bytes().to_vec();
        name_only.extend(b"disk");
        let cases: [(u32, &[u8], u32); 16] = [
            (77, b"anything", reply::ERR_UNSUP),
            (4, b"", reply::ERR_UNSUP),
            (option::STARTTLS, b"", reply::ERR_POLICY),
            (option::STARTTLS, b"x", reply::ERR_INVALID),
            (option::LIST, b"x", reply::ERR_INVALID),
            (option::STRUCTURED_REPLY, b"x", reply::ERR_INVALID),
            (option::EXTENDED_HEADERS, b"x", reply::ERR_INVALID),
            (option::GO, b"", reply::ERR_INVALID),
            (option::GO, &name_only, reply::ERR_INVALID),
            (option::GO, &long, reply::ERR_INVALID),
            (option::INFO, &behind, reply::ERR_INVALID),
            (option::INFO, b"\0\0\0\x02\xff\xfe\0\0", reply::ERR_INVALID),
            (option::GO, b"\0\0\0\x01\0\0\0", reply::ERR_INVALID),
            // Without structured replies there is no block status.
            (
                option::SET_META_CONTEXT,
                &context_data("disk", &[]),
                reply::ERR_INVALID,
            ),
            (
                option::LIST_META_CONTEXT,
                &context_data("disk", &[]),
                reply::ERR_INVALID,
            ),
            (option::LIST, &[0; 16385], reply::ERR_TOO_BIG),
        ];
        let mut peer = Peer::after_flags(3);
        for (kind, data, wanted) in cases {
            peer.option(kind, data);
            assert_eq!(peer.ops(), [], "{kind}");
            let told = peer.reply();
            assert_eq!((told.option, told.kind), (kind, wanted), "{data:?}");
        }
        peer.option(option::STRUCTURED_REPLY, b"");
        assert_eq!(peer.ops(), []);
        assert_eq!(peer.reply().kind, reply::ACK);
    }

    #[test]
    fn contexts_are_listed_by_wildcard_and_set_by_name_alone() {
        let mut peer = Peer::after_flags(3);
        peer.option(option::STRUCTURED_REPLY, b"");
        assert_eq!(peer.ops(), []);
        let _ = peer.reply();
        let (list, set) = (option::LIST_META_CONTEXT, option::SET_META_CONTEXT);
        for (kind, queries, id) in [
            (list, &[][..], Some(0)),
            (list, &["base:"][..], Some(0)),
            (list, &["x-other:", "base:allocation"][..], Some(0)),
            (list, &["base:other", "nothing"][..], None),
            (set, &[][..], None),
            (set, &["base:"][..], None),
            (
                set,
                &["qemu:dirty-bitmap:a", "base:allocation"][..],
                Some(1),
            ),
        ] {
            peer.option(kind, &context_data(DISK, queries));
            assert_eq!(peer.ops(), [NbdOp::Find]);
            assert_eq!(peer.find(true), Ok(false));
            peer.find_bitmaps(&[]);
            if let Some(id) = id {
                let told = peer.reply();
                assert_eq!(told.kind, reply::META_CONTEXT, "{queries:?}");
                let mut data = u32::to_be_bytes(id).to_vec();
                data.extend(b"base:allocation");
                assert_eq!(told.data, data, "{queries:?}");
            }
            assert_eq!(peer.reply().kind, reply::ACK, "{queries:?}");
        }
        let mut cut = context_data(DISK, &["base:allocation"]);
        cut.pop();
        peer.option(set, &cut);
        assert_eq!(peer.ops(), []);
        assert_eq!(peer.reply().kind, reply::ERR_INVALID);
    }

    #[test]
    fn context_goes_with_the_next_that_is_set_also_where_that_fails() {
        let mut peer = Peer::after_flags(3);
        peer.option(option::STRUCTURED_REPLY, b"");
        assert_eq!(peer.ops(), []);
        let _ = peer.reply();
        let context = context_data(DISK, &["base:allocation"]);
        peer.option(option::SET_META_CONTEXT, &context);
        assert_eq!(peer.ops(), [NbdOp::Find]);
        assert_eq!(peer.find(true), Ok(false));
        let _ = peer.sent();
        peer.option(option::SET_META_CONTEXT, &[0; 20_000]);
        assert_eq!(peer.ops(), []);
        assert_eq!(peer.reply().kind, reply::ERR_TOO_BIG);
        peer.option(option::GO, &go_data(DISK, &[]));
        assert_eq!(peer.ops(), [NbdOp::Find]);
        assert_eq!(peer.find(true), Ok(true));
        let _ = peer.sent();
        peer.request(request_type::BLOCK_STATUS, 0, 6, (0, 2048));
        assert_eq!(peer.ops(), []);
        assert!(!peer.sent().is_empty(), "it is refused");
    }

    #[test]
    fn extended_headers_come_before_structured_replies() {
        let mut peer = Peer::after_flags(3);
        for (kind, wanted) in [
            (option::STRUCTURED_REPLY, reply::ACK),
            (option::EXTENDED_HEADERS, reply::ACK),
            (option::STRUCTURED_REPLY, reply::ERR_EXT_HEADER_REQD),
        ] {
            peer.option(kind, b"");
            assert_eq!(peer.ops(), []);
            assert_eq!(peer.reply().kind, wanted);
        }
        peer.option(option::EXPORT_NAME, b"disk");
        assert_eq!(peer.ops(), [NbdOp::Fatal(FatalError::ExportName)]);
    }

    #[test]
    fn client_that_aborts_is_acknowledged_whatever_it_sends_with_that() {
        let mut peer = Peer::after_flags(3);
        peer.option(option::ABORT, b"bye");
        assert_eq!(peer.ops(), []);
        assert!(!peer.is_finished(), "it is told first");
        assert_eq!(peer.reply().kind, reply::ACK);
        assert!(peer.is_finished());
    }

    #[test]
    fn options_are_refused_while_the_server_ends_but_abort() {
        let mut peer = Peer::after_flags(3);
        peer.end.machine.shut_down();
        peer.option(option::LIST, b"");
        assert_eq!(peer.ops(), []);
        assert_eq!(peer.reply().kind, reply::ERR_SHUTDOWN);
        peer.option(option::ABORT, b"");
        assert_eq!(peer.ops(), []);
        assert_eq!(peer.reply().kind, reply::ACK);
    }

    #[test]
    fn handshake_has_a_bound_in_time_options_and_bytes() {
        let mut peer = Peer::after_flags(3);
        let deadline = peer.end.machine.deadline();
        assert_eq!(deadline, Some(7));
        for (now, deadline) in [(5, 12), (12, 19), (419, 420)] {
            peer.end.now = now;
            peer.option(77, b"");
            assert_eq!(peer.ops(), []);
            let _ = peer.sent();
            assert_eq!(peer.end.machine.deadline(), Some(deadline));
        }
        peer.option_header(option::LIST, (1 << 20) + 1);
        let error = FatalError::OptionTooLong((1 << 20) + 1);
        assert_eq!(peer.ops(), [NbdOp::Fatal(error)]);

        let mut peer = Peer::after_flags(3);
        let mut ended = Vec::new();
        for _ in 0..4097 {
            peer.option(77, b"");
            ended.extend(peer.ops());
            let _ = peer.sent();
        }
        assert_eq!(ended, [NbdOp::Fatal(FatalError::TooManyOptions)]);

        let mut peer = Peer::after_flags(3);
        peer.send(b"GET / HTTP/1.1\r\n");
        assert_eq!(peer.ops(), [NbdOp::Fatal(FatalError::OptionMagic)]);
    }

    #[test]
    fn client_that_reads_no_replies_gets_no_more_made() {
        let mut peer = Peer::after_flags(3);
        for _ in 0..3 {
            peer.option(77, b"");
        }
        assert_eq!(peer.ops(), []);
        assert_eq!(peer.stage_max(), 0);
        for _ in 0..3 {
            assert_eq!(peer.reply().kind, reply::ERR_UNSUP);
            assert!(peer.sent().is_empty(), "the next is made when this is sent");
            assert_eq!(peer.ops(), []);
        }
        assert!(peer.stage_max() > 0);
    }
}

mod transmission {
    use machine::Machine as _;
    use nbd::{FatalError, NbdAnswer, NbdError, NbdOp, RequestKind};
    use wire::nbd::{command_flags as flags, nbd_error, reply_type, request_type as request};

    use crate::peer::{ChunkSent, Form, Peer};

    const FORMS: [Form; 3] = [Form::Simple, Form::Structured, Form::Extended];

    fn done(data_len: u32) -> NbdAnswer {
        NbdAnswer::Done { data_len }
    }

    #[test]
    fn read_is_answered_with_its_data_in_the_form_that_was_agreed() {
        for form in FORMS {
            let mut peer = Peer::serving(form);
            peer.request(request::READ, 0, 9, (512, 1024));
            let [NbdOp::Execute { tag }] = peer.ops()[..] else {
                panic!("one request");
            };
            let asked = peer.end.machine.request_of(tag);
            assert_eq!(
                (asked.kind, asked.offset, asked.len),
                (RequestKind::Read, 512, 1024)
            );
            let data: Vec<u8> = (0..1024).map(|at| at as u8).collect();
            peer.end.set_memory(tag, data.clone());
            peer.end.machine.complete(tag, done(1024));
            match form {
                Form::Simple => {
                    let (error, cookie, rest) = peer.simple();
                    assert_eq!((error, cookie, rest), (0, 9, data));
                }
                _ => {
                    let chunk = peer.chunk();
                    let mut wanted = 512u64.to_be_bytes().to_vec();
                    wanted.extend(data);
                    assert_eq!(chunk, ChunkSent::new(reply_type::OFFSET_DATA, 9, wanted));
                }
            }
            assert_eq!(peer.end.released, [tag]);
        }
    }

    #[test]
    fn write_waits_for_memory_and_is_executed_when_all_of_it_is_there() {
        for form in FORMS {
            let mut peer = Peer::serving(form);
            peer.write(4, 1024, &[7; 512]);
            peer.request(request::FLUSH, 0, 5, (0, 0));
            let ops = peer.ops();
            let [
                NbdOp::Prepare {
                    tag,
                    len: 512,
                    staged: true,
                },
            ] = ops[..]
            else {
                panic!("{ops:?}");
            };
            assert_eq!(peer.stage_max(), 0, "before there is memory");
            peer.end.set_memory(tag, vec![0; 512]);
            peer.end.machine.prepared(tag);
            let ops = peer.ops();
            let [NbdOp::Execute { tag: first }, NbdOp::Execute { tag: flush }] = ops[..] else {
                panic!("{ops:?}");
            };
            assert_eq!(
                (first, &peer.end.memory[usize::from(tag)]),
                (tag, &vec![7; 512])
            );
            peer.end.machine.complete(flush, done(0));
            peer.end.machine.complete(tag, done(0));
            for cookie in [5, 4] {
                match form {
                    Form::Simple => assert_eq!(peer.simple(), (0, cookie, vec![])),
                    _ => {
                        let none = ChunkSent::new(reply_type::NONE, cookie, vec![]);
                        assert_eq!(peer.chunk(), none);
                    }
                }
            }
        }
    }

    #[test]
    fn requests_that_may_not_be_are_refused_and_the_stream_goes_on() {
        use nbd_error::*;
        let at = |offset, len| (offset, len);
        let cases = [
            (request::READ, 0, at(0, 0), EINVAL),
            (request::READ, 0, at(1, 512), EINVAL),
            (request::READ, 0, at(0, 513), EINVAL),
            (request::READ, 0, at(1 << 20, 512), EINVAL),
            (request::READ, 0, at(u64::MAX - 511, 512), EINVAL),
            (request::READ, flags::NO_HOLE, at(0, 512), EINVAL),
            (request::WRITE, 0, at((1 << 20) - 512, 1024), ENOSPC),
            (request::WRITE, 0, at(7, 512), EINVAL),
            (request::WRITE, flags::DF, at(0, 512), EINVAL),
            (request::WRITE, 1 << 9, at(0, 512), EINVAL),
            (request::FLUSH, 0, at(0, 512), EINVAL),
            (request::FLUSH, 0, at(512, 0), EINVAL),
            (request::TRIM, 0, at(1 << 20, 512), EINVAL),
            (request::TRIM, 0, at(0, 0), EINVAL),
            (request::TRIM, flags::REQ_ONE, at(0, 512), EINVAL),
            (request::CACHE, flags::FAST_ZERO, at(0, 512), EINVAL),
            (request::WRITE_ZEROES, 0, at(512, 1 << 20), ENOSPC),
            (
                request::WRITE_ZEROES,
                flags::FAST_ZERO | flags::NO_HOLE,
                at(0, 512),
                ENOTSUP,
            ),
            (request::BLOCK_STATUS, 0, at(0, 512), EINVAL),
            (8, 0, at(0, 512), EINVAL),
            (1000, 0, at(0, 512), EINVAL),
        ];
        for form in FORMS {
            let mut peer = Peer::serving(form);
            for (cookie, (kind, flags, (offset, len), error)) in (0..).zip(cases) {
                match kind {
                    request::WRITE => {
                        peer.write_with(flags, cookie, offset, &vec![1; len as usize])
                    }
                    _ => peer.request(kind, flags, cookie, (offset, len)),
                }
                assert_eq!(peer.ops(), [], "{kind} {flags:#x} {offset} {len}");
                assert_eq!(
                    peer.error(),
                    (error, cookie),
                    "{kind} {flags:#x} {offset} {len}"
                );
            }
            assert_eq!(peer.end.machine.in_flight(), 0);
            peer.request(request::FLUSH, flags::FUA, 1, (0, 0));
            assert!(matches!(peer.ops()[..], [NbdOp::Execute { .. }]));
        }
    }

    #[test]
    fn read_longer_than_a_payload_overflows_and_a_write_so_long_ends_the_connection() {
        let mut peer = Peer::serving_sized(Form::Structured, 1 << 30);
        peer.request(request::READ, 0, 1, (0, (32 << 20) + 512));
        assert_eq!(peer.ops(), []);
        assert_eq!(peer.error(), (nbd_error::EOVERFLOW, 1));
        // What has no payload may be as long as it likes.
        peer.request(request::WRITE_ZEROES, flags::FAST_ZERO, 2, (0, 1 << 30));
        let ops = peer.ops();
        let [NbdOp::Execute { tag }] = ops[..] else {
            panic!("{ops:?}");
        };
        assert_eq!(peer.end.machine.request_of(tag).len, 1 << 30);
        peer.request(request::WRITE, 0, 3, (0, (32 << 20) + 1));
        let error = FatalError::PayloadTooLong((32 << 20) + 1);
        assert_eq!(peer.ops(), [NbdOp::Fatal(error)]);
    }

    #[test]
    fn read_only_export_is_not_written() {
        let mut peer = Peer::serving(Form::Simple);
        let mut export = peer.end.machine.export().expect("it is served").clone();
        export.is_read_only = true;
        peer.end.machine.set_export(export);
        peer.write(1, 0, &[1; 512]);
        peer.request(request::TRIM, 0, 2, (0, 512));
        peer.request(request::WRITE_ZEROES, 0, 3, (0, 512));
        assert_eq!(peer.ops(), []);
        for cookie in 1..4 {
            assert_eq!(peer.simple(), (nbd_error::EPERM, cookie, vec![]));
        }
        peer.request(request::READ, 0, 4, (0, 512));
        assert!(matches!(peer.ops()[..], [NbdOp::Execute { .. }]));
    }

    #[test]
    fn payload_says_of_itself_that_it_is_there_where_headers_are_extended() {
        let mut peer = Peer::serving(Form::Extended);
        // No payload follows a write that does not say so, and one follows a read that does.
        peer.request(request::WRITE, 0, 1, (0, 512));
        peer.request(request::READ, flags::PAYLOAD_LEN, 2, (0, 512));
        peer.send(&[9; 512]);
        peer.request(request::BLOCK_STATUS, flags::PAYLOAD_LEN, 3, (0, 12));
        peer.send(&[9; 12]);
        assert_eq!(peer.ops(), []);
        for cookie in 1..4 {
            assert_eq!(peer.error(), (nbd_error::EINVAL, cookie));
        }
    }

    #[test]
    fn block_status_is_for_clients_that_have_selected_the_context_of_this_export() {
        for (form, name, is_there) in [
            (Form::Structured, "disk", true),
            (Form::Extended, "disk", true),
            (Form::Structured, "other", false),
        ] {
            let mut peer = Peer::with_context(form, name);
            peer.request(request::BLOCK_STATUS, 0, 6, (512, 2048));
            let ops = peer.ops();
            if !is_there {
                assert_eq!(ops, []);
                assert_eq!(peer.error(), (nbd_error::EINVAL, 6));
                continue;
            }
            let [NbdOp::Execute { tag }] = ops[..] else {
                panic!("{ops:?}");
            };
            peer.tell_status(tag, |_| vec![(1024, true), (4096, false)]);
            let (kind, words): (_, &[u32]) = match form {
                Form::Extended => (
                    reply_type::BLOCK_STATUS_EXT,
                    &[1, 2, 0, 1024, 0, 0, 0, 1024, 0, 3],
                ),
                _ => (reply_type::BLOCK_STATUS, &[1, 1024, 0, 1024, 3]),
            };
            let wanted = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            assert_eq!(peer.chunk(), ChunkSent::new(kind, 6, wanted));
        }
    }

    #[test]
    fn descriptors_are_cut_to_one_and_to_the_room_that_there_is() {
        let mut peer = Peer::with_context(Form::Structured, "disk");
        peer.request(request::BLOCK_STATUS, flags::REQ_ONE, 1, (0, 1024));
        peer.request(request::BLOCK_STATUS, 0, 1, (0, 1 << 20));
        let ops = peer.ops();
        let [NbdOp::Execute { tag: one }, NbdOp::Execute { tag: all }] = ops[..] else {
            panic!("{ops:?}");
        };
        let told = |tag, chunk_bytes| {
            let parts = [(512, false), (512, true)].repeat(1000);
            let reply = peer.end.machine.status_reply(tag);
            let chunks = reply.chunks(chunk_bytes, |_, _| Ok::<_, ()>(parts.clone()));
            chunks.expect("parts").len()
        };
        assert_eq!(told(one, 4096), 24 + 8);
        assert_eq!(told(all, 64), 24 + 3 * 8);
        assert_eq!(told(all, 40 + 7), 24);
    }

    #[test]
    fn requests_beyond_those_that_may_be_under_way_wait_for_replies() {
        let mut peer = Peer::serving(Form::Simple);
        for cookie in 0..6 {
            peer.request(request::FLUSH, 0, cookie, (0, 0));
        }
        let ops = peer.ops();
        assert_eq!(ops.len(), 4);
        assert_eq!(peer.stage_max(), 0);
        assert!(!peer.end.machine.has_step());
        for op in ops {
            let NbdOp::Execute { tag } = op else {
                panic!("{op:?}");
            };
            peer.end.machine.complete(tag, done(0));
        }
        assert_eq!(peer.ops(), [], "replies are not sent");
        assert_eq!(peer.sent().len(), 4 * 16);
        assert!(peer.end.machine.has_step());
        assert_eq!(peer.ops().len(), 2);
    }

    #[test]
    fn block_statuses_of_a_connection_that_are_under_way_are_few() {
        let mut peer = Peer::with_context_among(64, Form::Structured, "disk");
        for cookie in 0..20 {
            peer.request(request::BLOCK_STATUS, 0, cookie, (0, 2048));
        }
        let ops = peer.ops();
        assert_eq!(ops.len(), 16);
        assert_eq!(peer.stage_max(), 0);
        let NbdOp::Execute { tag } = ops[0] else {
            panic!("{ops:?}");
        };
        let failed = NbdAnswer::Failed(NbdError::IO);
        peer.end.machine.complete(tag, failed);
        assert_eq!(peer.ops().len(), 1);
    }

    #[test]
    fn client_that_disconnects_has_what_it_asked_for_before() {
        let mut peer = Peer::serving(Form::Simple);
        peer.request(request::FLUSH, 0, 1, (0, 0));
        peer.request(request::DISC, 0, 2, (0, 0));
        peer.request(request::FLUSH, 0, 3, (0, 0));
        let ops = peer.ops();
        let [NbdOp::Execute { tag }] = ops[..] else {
            panic!("{ops:?}");
        };
        assert!(!peer.is_finished());
        peer.end.machine.complete(tag, done(0));
        assert!(!peer.is_finished());
        assert_eq!(peer.simple(), (0, 1, vec![]));
        assert!(peer.is_finished());
    }

    #[test]
    fn requests_are_refused_in_their_order_while_the_server_ends() {
        let mut peer = Peer::serving(Form::Structured);
        peer.request(request::FLUSH, 0, 1, (0, 0));
        let ops = peer.ops();
        let [NbdOp::Execute { tag }] = ops[..] else {
            panic!("{ops:?}");
        };
        peer.end.machine.shut_down();
        peer.write(2, 0, &[1; 512]);
        peer.request(request::READ, 0, 3, (0, 512));
        assert_eq!(peer.ops(), []);
        peer.end.machine.complete(tag, done(0));
        assert_eq!(peer.error(), (nbd_error::ESHUTDOWN, 2));
        assert_eq!(peer.error(), (nbd_error::ESHUTDOWN, 3));
        assert_eq!(peer.chunk(), ChunkSent::new(reply_type::NONE, 1, vec![]));
    }

    #[test]
    fn write_that_finds_no_memory_is_passed_over() {
        let mut peer = Peer::serving(Form::Simple);
        peer.write(1, 0, &[1; 1024]);
        peer.request(request::FLUSH, 0, 2, (0, 0));
        let ops = peer.ops();
        let [NbdOp::Prepare { tag, .. }] = ops[..] else {
            panic!("{ops:?}");
        };
        let failed = NbdAnswer::Failed(NbdError::NO_MEMORY);
        peer.end.machine.complete(tag, failed);
        assert!(matches!(peer.ops()[..], [NbdOp::Execute { .. }]));
        assert_eq!(peer.simple(), (nbd_error::ENOMEM, 1, vec![]));
    }

    #[test]
    fn large_payload_goes_straight_to_its_memory_from_the_second_on() {
        const LEN: usize = 64 << 10;
        let mut peer = Peer::serving(Form::Simple);
        for cookie in 0..3 {
            peer.write(cookie, 0, &[3; LEN]);
            let ops = peer.ops();
            let [NbdOp::Prepare { tag, staged, .. }] = ops[..] else {
                panic!("{ops:?}");
            };
            assert_eq!(staged, cookie == 0);
            peer.end.set_memory(tag, vec![0; LEN]);
            peer.end.machine.prepared(tag);
            assert_eq!(peer.ops(), [NbdOp::Execute { tag }]);
            assert_eq!(peer.end.memory[usize::from(tag)], [3; LEN]);
            peer.end.machine.complete(tag, done(0));
            let _ = peer.sent();
        }
        assert_eq!(peer.end.direct_bytes, 2 * LEN as u64);
    }

    #[test]
    fn request_without_its_magic_ends_the_connection() {
        let mut peer = Peer::serving(Form::Simple);
        peer.send(&[0; 28]);
        assert_eq!(peer.ops(), [NbdOp::Fatal(FatalError::RequestMagic)]);
        assert!(peer.is_finished());
    }
}

mod any_bytes {
    use random::Random;
    use std::collections::BTreeMap;

    use nbd::{NbdAnswer, NbdOp, NbdServer, NbdSettings, RequestKind};
    use wire::nbd::request_type as request;

    use crate::peer::{Form, Peer, export};

    /// Whatever a client sends, in whatever pieces, the machine takes or ends.
    #[test]
    fn bytes_without_sense_break_nothing() {
        for seed in 0..3000 {
            let mut random = Random::new(seed);
            let settings = NbdSettings {
                in_flight_max: 4,
                handshake_timeout: 1,
                tls: Default::default(),
            };
            let mut peer = Peer::of(NbdServer::new(settings, 0));
            let _ = peer.sent();
            let mut bytes = vec![0, 0, 0, 3];
            for _ in 0..random.below(8) {
                bytes.extend(b"IHAVEOPT");
                bytes.extend((random.below(14) as u32).to_be_bytes());
                let len = random.below(24) as usize;
                bytes.extend((len as u32).to_be_bytes());
                bytes.extend((0..len).map(|_| random.pick(&[0u8, 0, 0, 1, 4, b'd'])));
            }
            if random.one_in(2) && !bytes.is_empty() {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << random.below(8);
            }
            bytes.extend((0..random.below(200)).map(|_| random.next_u32() as u8));
            peer.max = 1 + random.below(40) as usize;
            peer.send(&bytes);
            for _ in 0..200 {
                for op in peer.ops() {
                    match op {
                        NbdOp::List => peer.end.machine.list([("d", "")].into_iter()),
                        NbdOp::Find => {
                            let there = random.one_in(2).then(export);
                            let _ = peer.end.machine.found(there);
                            peer.find_bitmaps(&["a", "d"]);
                        }
                        NbdOp::Prepare { tag, len, .. } => {
                            peer.end.set_memory(tag, vec![0; len as usize]);
                            peer.end.machine.prepared(tag);
                        }
                        NbdOp::Execute { tag } => {
                            let answer = NbdAnswer::Done { data_len: 0 };
                            peer.end.machine.complete(tag, answer);
                        }
                        NbdOp::Refused(_) | NbdOp::Fatal(_) => {}
                    }
                }
                let _ = peer.sent();
            }
        }
    }

    /// Each request has one reply, and writes have their own bytes, in whatever pieces and with
    /// whatever refused requests between them.
    #[test]
    fn every_request_is_answered_once_in_any_pieces() {
        for seed in 0..600 {
            let mut random = Random::new(seed);
            let mut peer = Peer::serving(random.pick(&[Form::Structured, Form::Extended]));
            peer.max = 1 + random.below(3000) as usize;
            let mut wanted = BTreeMap::new();
            for cookie in 0..random.below(30) {
                let kind = random.pick(&[request::READ, request::WRITE, request::FLUSH, 99]);
                let is_right = random.one_in(2);
                let len = 512 * (1 + random.below(4)) + u64::from(!is_right);
                match kind {
                    request::WRITE => {
                        peer.write(cookie, 512 * cookie, &vec![cookie as u8; len as usize])
                    }
                    request::FLUSH => peer.request(kind, 0, cookie, (0, u64::from(!is_right))),
                    _ => peer.request(kind, 0, cookie, (512, len)),
                }
                wanted.insert(cookie, is_right && kind != 99);
            }
            let (mut open, mut replies) = (Vec::new(), Vec::new());
            for _ in 0..100_000 {
                for op in peer.ops() {
                    match op {
                        NbdOp::Prepare { tag, len, .. } => {
                            peer.end.set_memory(tag, vec![0; len as usize]);
                            peer.end.machine.prepared(tag);
                        }
                        NbdOp::Execute { tag } => open.push(tag),
                        other => panic!("{other:?}"),
                    }
                }
                if !open.is_empty() && random.one_in(2) {
                    let tag = open.swap_remove(random.below(open.len() as u64) as usize);
                    let asked = peer.end.machine.request_of(tag);
                    let data_len = match asked.kind {
                        RequestKind::Read => {
                            peer.end.set_memory(tag, vec![0; asked.len as usize]);
                            asked.len as u32
                        }
                        RequestKind::Write => {
                            let data = &peer.end.memory[usize::from(tag)];
                            let byte = (asked.offset / 512) as u8;
                            assert_eq!(data, &vec![byte; asked.len as usize], "seed {seed}");
                            0
                        }
                        _ => 0,
                    };
                    peer.end.machine.complete(tag, NbdAnswer::Done { data_len });
                }
                while peer.has_reply() {
                    replies.push(peer.outcome());
                }
                if replies.len() == wanted.len() {
                    break;
                }
            }
            let count = replies.len();
            let replies: BTreeMap<_, _> = replies.into_iter().collect();
            assert_eq!((count, replies), (wanted.len(), wanted), "seed {seed}");
            assert_eq!(peer.end.machine.in_flight(), 0);
        }
    }
}

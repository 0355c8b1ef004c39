//! Sessions: slots and their sequence ids, callbacks.

use wire::nfs4::EXCHANGE_ID4resok;

use super::*;

fn sequenced(slot: Slot, target: u32) -> SEQUENCE4resok {
    SEQUENCE4resok {
        sr_sessionid: SESSION,
        sr_sequenceid: slot.sequenceid,
        sr_slotid: slot.slotid,
        sr_highest_slotid: 15,
        sr_target_highest_slotid: target,
        sr_status_flags: 0,
    }
}

#[test]
fn a_sequence_id_advances_only_when_its_request_was_executed() {
    let mut slots = slots(2);
    let one = slots.take().unwrap();
    assert_eq!(
        one,
        Slot {
            slotid: 0,
            sequenceid: 1
        }
    );
    assert_eq!(slots.sequence(one, true).sa_highest_slotid, 1);
    let two = slots.take().unwrap();
    assert_eq!((two.slotid, slots.take(), slots.in_use()), (1, None, 2));
    slots.end(one, &sequenced(one, 1));
    assert_eq!(
        slots.take(),
        Some(Slot {
            slotid: 0,
            sequenceid: 2
        })
    );
    let wrong = |status| Wrong::Status(nfs_opnum4::OP_SEQUENCE, status);
    // Not executed: the same sequence id is used again.
    let delay = wrong(nfsstat4::NFS4ERR_DELAY);
    assert_eq!(slots.ended(two, Err(&delay)), Sequenced::Again);
    assert_eq!(slots.take(), Some(two));
    let forgotten = wrong(nfsstat4::NFS4ERR_RETRY_UNCACHED_REP);
    assert_eq!(slots.ended(two, Err(&forgotten)), Sequenced::Forgotten);
    let two = slots.take().unwrap();
    assert_eq!(
        two,
        Slot {
            slotid: 1,
            sequenceid: 2
        }
    );
    // The two sides do not agree: it is not used again.
    let misordered = wrong(nfsstat4::NFS4ERR_SEQ_MISORDERED);
    assert_eq!(slots.ended(two, Err(&misordered)), Sequenced::Again);
    assert_eq!(slots.take(), None);
    let gone = wrong(nfsstat4::NFS4ERR_BADSESSION);
    assert_eq!(slots.ended(one, Err(&gone)), Sequenced::Gone);
    assert_eq!(slots.ended(one, Err(&Wrong::Answer)), Sequenced::Refused);
}

#[test]
fn slots_above_the_target_of_the_server_are_not_taken() {
    let mut slots = slots(4);
    let one = slots.take().unwrap();
    slots.end(one, &sequenced(one, 1));
    let taken: Vec<_> = std::iter::from_fn(|| slots.take())
        .map(|s| s.slotid)
        .collect();
    assert_eq!(taken, [0, 1]);
    assert_eq!(slots.in_use(), 2);
    let again = Slot {
        slotid: 0,
        sequenceid: 2,
    };
    slots.end(again, &sequenced(again, 3));
    let taken: Vec<_> = std::iter::from_fn(|| slots.take())
        .map(|s| s.slotid)
        .collect();
    assert_eq!(taken.len(), 3);
}

#[test]
fn slots_of_a_session_are_split_among_connections() {
    let mut all = slots(8);
    let mut theirs = all.split(3).unwrap();
    assert_eq!((all.count(), theirs.count()), (5, 3));
    let take = |slots: &mut Slots| -> Vec<u32> {
        std::iter::from_fn(|| slots.take())
            .map(|slot| slot.slotid)
            .collect()
    };
    assert_eq!(take(&mut all), [0, 1, 2, 3, 4]);
    assert_eq!(take(&mut theirs), [5, 6, 7]);
    assert_eq!(theirs.session(), SESSION);
    assert_eq!(theirs.sequence(Slot::default(), false).sa_highest_slotid, 7);
    assert!(all.split(1).is_none(), "they are in use");
    assert!(slots(2).split(3).is_none());
}

fn callback(ops: &[nfs_cb_argop4<'_>], minor: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    wire::nfs4::CB_COMPOUND4args {
        tag: Opaque(b"cb"),
        minorversion: minor,
        callback_ident: 0,
        argarray: List::Of(ops),
    }
    .encode(&mut bytes);
    bytes
}

fn cb_sequence(slotid: u32, sequenceid: u32) -> nfs_cb_argop4<'static> {
    nfs_cb_argop4::OP_CB_SEQUENCE(CB_SEQUENCE4args {
        csa_sessionid: SESSION,
        csa_sequenceid: sequenceid,
        csa_slotid: slotid,
        csa_highest_slotid: 0,
        csa_cachethis: false,
        csa_referring_call_lists: List::Of(&[]),
    })
}

fn recall() -> nfs_cb_argop4<'static> {
    nfs_cb_argop4::OP_CB_RECALL(CB_RECALL4args {
        stateid: STATE,
        truncate: false,
        fh: Opaque(b"handle"),
    })
}

#[test]
fn callbacks_are_taken_once_in_their_order() {
    let mut channel = Backchannel::new(SESSION, 2);
    let mut taken = 0;
    let mut answer = |ops: &[nfs_cb_argop4<'_>], minor| {
        let mut to = vec![0xaa];
        channel.answer(&callback(ops, minor), &mut to, |op, _| {
            taken += u32::from(*op == recall());
            nfsstat4::NFS4_OK
        });
        // Status, the tag with its padding, how many results; the last of them.
        let words: Vec<u32> = (to[1..].chunks(4))
            .map(|word| u32::from_be_bytes(word.try_into().unwrap()))
            .collect();
        (words[0], words[3], words.last().copied(), taken)
    };
    let bad = |status: nfsstat4| status as u32;
    let first = answer(&[cb_sequence(1, 1), recall()], 1);
    assert_eq!(first, (0, 2, Some(0), 1));
    assert_eq!(
        answer(&[cb_sequence(1, 1), recall()], 1),
        first,
        "answered again"
    );
    assert_eq!(answer(&[cb_sequence(1, 2), recall()], 2).3, 2);
    let refused = [
        (vec![cb_sequence(1, 4)], nfsstat4::NFS4ERR_SEQ_MISORDERED),
        (vec![cb_sequence(0, 0)], nfsstat4::NFS4ERR_SEQ_MISORDERED),
        (vec![cb_sequence(2, 1)], nfsstat4::NFS4ERR_BADSLOT),
        (vec![recall()], nfsstat4::NFS4ERR_OP_NOT_IN_SESSION),
    ];
    for (ops, status) in refused {
        let (found, results, last, taken) = answer(&ops, 1);
        assert_eq!((found, results, last), (bad(status), 1, Some(bad(status))));
        assert_eq!(taken, 2);
    }
    let twice = answer(&[cb_sequence(0, 1), cb_sequence(0, 2)], 1);
    assert_eq!((twice.0, twice.1), (bad(nfsstat4::NFS4ERR_SEQUENCE_POS), 2));
    let minor = answer(&[cb_sequence(0, 2)], 0);
    assert_eq!(
        (minor.0, minor.1),
        (bad(nfsstat4::NFS4ERR_MINOR_VERS_MISMATCH), 0)
    );
}

#[test]
fn callbacks_are_answered_or_refused() {
    let mut client = Client::new(settings());
    let mut server = server();
    let mut call = |program, version, procedure, args: &[u8]| {
        let machine = &mut server.end.machine;
        machine
            .call_back((program, version, procedure), |to| to.extend(args))
            .unwrap()
    };
    let args = callback(&[cb_sequence(0, 1), recall()], 1);
    let calls = [
        call(PROGRAM, NFS_CB, 0, &[]),
        call(PROGRAM, NFS_CB, 1, &args),
        call(PROGRAM + 1, NFS_CB, 1, &[]),
        call(PROGRAM, NFS_CB + 1, 1, &[]),
        call(PROGRAM, NFS_CB, 2, &[]),
    ];
    client.receive_all(&mut sent(&mut server), 13);
    assert_eq!(client.callbacks, [(calls[1], args)]);
    client
        .end
        .machine
        .answer_callback(calls[1], |to| 99u32.encode(to));
    serve_all(&mut server, &mut client.send());
    let words = |bytes: &[u8]| -> Vec<u32> {
        let words = bytes.chunks(4);
        words
            .map(|word| u32::from_be_bytes(word.try_into().unwrap()))
            .collect()
    };
    let answers: Vec<_> = server
        .answers
        .iter()
        .map(|(xid, bytes)| (*xid, words(bytes)))
        .collect();
    let expected = [
        (calls[0], vec![0, 0, 0, 0]),
        (calls[2], vec![0, 0, 0, 1]),
        (calls[3], vec![0, 0, 0, 2, NFS_CB, NFS_CB]),
        (calls[4], vec![0, 0, 0, 3]),
        (calls[1], vec![0, 0, 0, 0, 99]),
    ];
    assert_eq!(answers, expected);
}

#[test]
fn connection_ends_when_the_server_calls_and_takes_no_answers() {
    let mut client = Client::new(settings());
    let header = [1, 0, 2, PROGRAM, NFS_CB, 0, 0, 0, 0, 0];
    let bytes: Vec<u8> = header.iter().flat_map(|word| word.to_be_bytes()).collect();
    let call = record(&bytes, || usize::MAX);
    let mut stream: VecDeque<u8> = call.repeat(65).into();
    client.receive_all(&mut stream, usize::MAX);
    assert_eq!(client.fatal, Some(RpcClientFatalError::Callbacks));
}

/// A COMPOUND of a minor version that the server has not is refused before its
/// first operation: there is no result to look into (RFC 8881, section 2.7).
#[test]
fn a_minor_version_that_is_not_there_is_told_without_results() {
    let status = nfsstat4::NFS4ERR_MINOR_VERS_MISMATCH;
    for tag in [&b""[..], b"tag!"] {
        let mut answer = Vec::new();
        let head = compound_res_head {
            status,
            tag: Opaque(tag),
            results: 0,
        };
        head.encode(&mut answer);
        let mut results = Results::read(&answer, false).expect("an answer");
        let number = nfs_opnum4::OP_EXCHANGE_ID;
        let found = results.take::<EXCHANGE_ID4resok<'_>>(number);
        let found = found.map(|_| ()).expect_err("refused");
        assert_eq!(found, Wrong::Status(number, status));
    }
}

/// What one message of a session may be is known to all that share its slots.
#[test]
fn messages_are_as_large_as_the_smaller_of_both_directions() {
    for (calls, answers) in [(2048, 4096), (4096, 2048)] {
        let mut made = made(4);
        made.csr_fore_chan_attrs.ca_maxrequestsize = calls;
        made.csr_fore_chan_attrs.ca_maxresponsesize = answers;
        let mut slots = Slots::new(&made);
        assert_eq!(slots.message_bytes_max(), 2048);
        let taken = slots.split(2).expect("all are free");
        assert_eq!(taken.message_bytes_max(), 2048);
    }
}

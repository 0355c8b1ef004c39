//! The contexts `qemu:dirty-bitmap:NAME`.

use nbd::{BitmapsFound, NbdContext, NbdOp, NbdTls};
use wire::nbd::{nbd_option as option, option_reply as reply, reply_type, request_type as request};

use crate::peer::{ChunkSent, DISK, Form, Peer, context_data};

const LIST: u32 = option::LIST_META_CONTEXT;
const SET: u32 = option::SET_META_CONTEXT;

fn agreed(form: Form) -> Peer {
    let mut peer = Peer::after_flags(3);
    peer.agree(form);
    peer
}

/// What is told of an option with these queries, where there are the bitmaps "a" and "b".
fn told(peer: &mut Peer, kind: u32, queries: &[&str]) -> Vec<(u32, String)> {
    peer.option(kind, &context_data(DISK, queries));
    assert_eq!(peer.ops(), [NbdOp::Find]);
    assert_eq!(peer.find(true), Ok(false));
    peer.find_bitmaps(&["a", "b"]);
    let mut told = Vec::new();
    loop {
        let sent = peer.reply();
        if sent.kind == reply::ACK {
            return told;
        }
        assert_eq!((sent.kind, sent.option), (reply::META_CONTEXT, kind));
        let (id, name) = sent.data.split_first_chunk().expect("an identifier");
        let name = String::from_utf8(name.to_vec()).expect("a name");
        told.push((u32::from_be_bytes(*id), name));
    }
}

#[test]
fn bitmaps_are_listed_by_wildcard_and_set_by_name_alone() {
    let mut peer = agreed(Form::Structured);
    let (base, a, b) = (
        "base:allocation",
        "qemu:dirty-bitmap:a",
        "qemu:dirty-bitmap:b",
    );
    let empty: &[&str] = &[];
    for (kind, queries, wanted) in [
        (LIST, empty, &[(0, base), (0, a), (0, b)][..]),
        (LIST, &["qemu:"], &[(0, a), (0, b)]),
        (LIST, &["qemu:dirty-bitmap:"], &[(0, a), (0, b)]),
        (LIST, &["base:", b], &[(0, base), (0, b)]),
        (LIST, &["qemu:dirty-bitmap:c", "qemu:allocation-depth"], &[]),
        (SET, empty, &[]),
        (SET, &["qemu:", "qemu:dirty-bitmap:"], &[]),
        (SET, &[b, a, base, a], &[(1, base), (2, a), (3, b)]),
        (SET, &[b, "qemu:dirty-bitmap:c"], &[(1, b)]),
    ] {
        let wanted: Vec<_> = wanted
            .iter()
            .map(|(id, name)| (*id, (*name).to_owned()))
            .collect();
        assert_eq!(told(&mut peer, kind, queries), wanted, "{kind} {queries:?}");
    }
}

#[test]
fn list_of_many_bitmaps_is_made_in_parts_as_the_client_reads_it() {
    let names: Vec<String> = (0..300).map(|at| format!("{at:064}")).collect();
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    let mut peer = agreed(Form::Structured);
    peer.option(LIST, &context_data(DISK, &["qemu:"]));
    let mut sent = Vec::new();
    for part in 1..=3 {
        assert_eq!(peer.ops(), [NbdOp::Find], "part {part}");
        assert_eq!(peer.find(true), Ok(false));
        assert_eq!(peer.ops(), [], "the driver has not answered");
        peer.find_bitmaps(&names);
        if part < 3 {
            assert_eq!(peer.ops(), [], "no more is made before this is sent");
        }
        let bytes = peer.sent();
        assert!(bytes.len() < 16 << 10, "{}", bytes.len());
        sent.extend(bytes);
    }
    assert_eq!(sent.len(), 300 * (20 + 4 + 18 + 64) + 20);
    peer.option(77, b"");
    assert_eq!(peer.ops(), []);
    assert_eq!(peer.reply().kind, reply::ERR_UNSUP);
}

#[test]
fn list_ends_where_its_export_goes_away() {
    let names: Vec<String> = (0..200).map(|at| format!("{at:03}")).collect();
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    let mut peer = agreed(Form::Structured);
    peer.option(LIST, &context_data(DISK, &["qemu:"]));
    assert_eq!(peer.ops(), [NbdOp::Find]);
    assert_eq!(peer.find(true), Ok(false));
    peer.find_bitmaps(&names);
    let _ = peer.sent();
    assert_eq!(peer.ops(), [NbdOp::Find]);
    assert_eq!(peer.find(false), Ok(false));
    assert_eq!(peer.reply().kind, reply::ERR_UNKNOWN);
    assert_eq!(told(&mut peer, LIST, &["qemu:"]).len(), 2);
}

#[test]
fn more_contexts_than_may_be_are_refused_in_words_and_the_client_goes_on() {
    let names: Vec<String> = (0..17)
        .map(|at| format!("qemu:dirty-bitmap:{at}"))
        .collect();
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    let with_base = [&["base:allocation"], &names[..16]].concat();
    let mut peer = agreed(Form::Structured);
    for queries in [&names[..], &with_base] {
        peer.option(SET, &context_data(DISK, queries));
        assert_eq!(peer.ops(), []);
        let told = peer.reply();
        assert_eq!(told.kind, reply::ERR_TOO_BIG);
        assert!(String::from_utf8_lossy(&told.data).contains("16"));
    }
    // A list may be of more, and the same name counts once.
    assert_eq!(told(&mut peer, LIST, &names), []);
    let often = ["qemu:dirty-bitmap:a"; 20];
    assert_eq!(told(&mut peer, SET, &often).len(), 1);
    assert_eq!(told(&mut peer, SET, &names[..16]), []);
}

#[test]
fn odd_names_find_nothing_and_what_is_no_string_is_malformed() {
    let longest = format!("qemu:dirty-bitmap:{}", "n".repeat(4096 - 18));
    let longer = format!("{longest}n");
    let mut peer = agreed(Form::Structured);
    for query in [
        &*longest,
        "qemu:dirty-bitmap:../a",
        "qemu:dirty-bitmap",
        "QEMU:",
    ] {
        assert_eq!(told(&mut peer, SET, &[query]), [], "{query}");
        assert_eq!(told(&mut peer, LIST, &[query]), [], "{query}");
    }
    let mut no_text = context_data(DISK, &["qemu:dirty-bitmap:a"]);
    *no_text.last_mut().expect("a byte") = 0xff;
    for data in [no_text, context_data(DISK, &[&longer])] {
        peer.option(SET, &data);
        assert_eq!(peer.ops(), []);
        assert_eq!(peer.reply().kind, reply::ERR_INVALID);
    }
    // Without structured replies there is no block status.
    let mut peer = Peer::after_flags(3);
    peer.option(SET, &context_data(DISK, &["qemu:dirty-bitmap:a"]));
    assert_eq!(peer.ops(), []);
    assert_eq!(peer.reply().kind, reply::ERR_INVALID);
}

#[test]
fn block_status_has_a_chunk_for_each_context_and_the_last_says_so() {
    for form in [Form::Structured, Form::Extended] {
        let mut peer = agreed(form);
        let set = [
            "base:allocation",
            "qemu:dirty-bitmap:a",
            "qemu:dirty-bitmap:b",
        ];
        assert_eq!(told(&mut peer, SET, &set).len(), 3);
        peer.go(1 << 20);
        peer.request(request::BLOCK_STATUS, 0, 6, (512, 2048));
        peer.request(request::READ, 0, 7, (0, 512));
        let ops = peer.ops();
        let [NbdOp::Execute { tag }, NbdOp::Execute { .. }] = ops[..] else {
            panic!("{ops:?}");
        };
        peer.tell_status(tag, |context| match context {
            NbdContext::Allocation => vec![(4096, true)],
            NbdContext::DirtyBitmap(bitmap) => {
                assert_eq!(bitmap.identity, [7; 16]);
                vec![(1024, bitmap.name == "a"), (1024, bitmap.name == "b")]
            }
        });
        let wanted: [&[u32]; 3] = match form {
            Form::Extended => [
                &[1, 1, 0, 2048, 0, 0],
                &[2, 2, 0, 1024, 0, 1, 0, 1024, 0, 0],
                &[3, 2, 0, 1024, 0, 0, 0, 1024, 0, 1],
            ],
            _ => [
                &[1, 2048, 0],
                &[2, 1024, 1, 1024, 0],
                &[3, 1024, 0, 1024, 1],
            ],
        };
        let kind = match form {
            Form::Extended => reply_type::BLOCK_STATUS_EXT,
            _ => reply_type::BLOCK_STATUS,
        };
        for (at, words) in wanted.iter().enumerate() {
            let data = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            let chunk = ChunkSent::new(kind, 6, data);
            assert_eq!(peer.chunk_of_several(), (at == 2, chunk), "{form:?}");
        }
    }
}

#[test]
fn contexts_of_another_export_and_those_of_before_tls_count_nothing() {
    let refused = |peer: &mut Peer| {
        peer.go(1 << 20);
        peer.request(request::BLOCK_STATUS, 0, 1, (0, 512));
        assert_eq!(peer.ops(), []);
        assert_eq!(peer.outcome(), (1, false));
    };
    let mut peer = agreed(Form::Structured);
    peer.option(SET, &context_data("other", &["qemu:dirty-bitmap:a"]));
    assert_eq!(peer.ops(), [NbdOp::Find]);
    assert_eq!(peer.find(true), Ok(false));
    peer.find_bitmaps(&["a"]);
    let _ = peer.sent();
    refused(&mut peer);

    let mut peer = Peer::with_tls(NbdTls::Offered);
    peer.agree(Form::Structured);
    assert_eq!(told(&mut peer, SET, &["qemu:dirty-bitmap:a"]).len(), 1);
    peer.option(option::STARTTLS, b"");
    assert_eq!(peer.ops(), []);
    assert_eq!(peer.reply().kind, reply::ACK);
    peer.end.machine.tls_begun();
    peer.agree(Form::Structured);
    refused(&mut peer);
}

#[test]
fn answer_about_bitmaps_that_comes_behind_the_end_changes_nothing() {
    let mut peer = agreed(Form::Structured);
    peer.option(SET, &context_data(DISK, &["qemu:dirty-bitmap:a"]));
    assert_eq!(peer.ops(), [NbdOp::Find]);
    assert_eq!(peer.find(true), Ok(false));
    assert!(peer.end.machine.bitmaps_asked().is_some());
    peer.end.machine.end();
    peer.end.machine.bitmaps(BitmapsFound::Set(Vec::new()));
    assert!(peer.is_finished() && peer.sent().is_empty());
}

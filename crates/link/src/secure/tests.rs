//! Two record layers, one behind the other, without a socket.

use auth::Secret;
use auth::psk::PskHash;
use mem::{Budget, Region, Share};
use reactor::{AnyDriver, Choice, DriverConfig};

use super::*;

fn pool() -> Pool {
    Pool::new(Budget::new(64 << 20)).expect("room")
}

fn driver() -> AnyDriver {
    reactor::open(Choice::Epoll, &DriverConfig::default(), pool()).expect("epoll")
}

/// A layer that seals what another one opens, and the other way round.
fn layer(is_client: bool) -> RecordLayer {
    let hash = PskHash::Sha256;
    let secret = |byte| Secret::new(vec![byte; hash.digest_bytes()]);
    let (own, theirs) = match is_client {
        true => (1, 2),
        false => (2, 1),
    };
    let secured = Secured {
        sealer: Sealer::new(hash, secret(own)),
        opener: Opener::new(hash, secret(theirs)),
        left: Vec::new(),
        peer: ProvenPeer::Certificate(None),
    };
    RecordLayer::new(secured, Vec::new(), pool())
}

/// What one send has of what a layer has to send.
fn sent(layer: &mut RecordLayer) -> Vec<u8> {
    let (mut bytes, mut driver) = (Vec::new(), driver());
    layer.seal(&mut driver).take_out(usize::MAX, &mut bytes);
    bytes
}

/// `bytes` in one send.
fn sent_of(layer: &mut RecordLayer, bytes: &[u8]) -> Vec<u8> {
    let mut batch = Batch::new();
    batch.header(bytes);
    layer.take(batch);
    sent(layer)
}

/// What a layer makes of received bytes: the data, and whether nothing more comes.
fn received(
    layer: &mut RecordLayer,
    bytes: &[u8],
    eof: bool,
) -> Result<(Vec<u8>, bool), RecordError> {
    let pool = pool();
    let (stage, _) = layer.begin_receive(None, None, 256 << 10);
    let mut stage = stage.unwrap_or_else(|| pool.stage_of(STAGE_BYTES));
    stage.make_room(&pool, bytes.len() as u32);
    stage.append(bytes);
    let opened = layer.on_received(Received {
        direct: 0,
        stage: Some(stage),
        eof,
        more: false,
    })?;
    let data = opened
        .stage
        .map_or(Vec::new(), |stage| stage.bytes().to_vec());
    Ok((data, opened.eof))
}

#[test]
fn used_up_key_is_told_once_and_kept_where_the_peer_takes_no_other() {
    let (mut server, mut client) = (layer(false), layer(true));
    server.records_of_key_max = 3;
    for round in 0..6u8 {
        let records = sent_of(&mut server, &[round]);
        assert_eq!(
            received(&mut client, &records, false),
            Ok((vec![round], false))
        );
        assert_eq!(server.take_key_used_up(), round == 2, "{round}");
    }
    assert_eq!(server.sealer.records_of_key(), 6);
}

#[test]
fn used_up_key_is_followed_by_another_where_the_peer_has_sent_key_update() {
    let (mut server, mut client) = (layer(false), layer(true));
    server.records_of_key_max = 3;
    let update = client.sealer.update();
    assert_eq!(
        received(&mut server, &update, false),
        Ok((Vec::new(), false))
    );
    for round in 0..10u8 {
        let records = sent_of(&mut server, &[round]);
        assert_eq!(
            received(&mut client, &records, false),
            Ok((vec![round], false))
        );
        assert!(!server.take_key_used_up());
        assert!(server.sealer.records_of_key() <= 3);
    }
}

#[test]
fn connection_that_ends_within_a_record_is_cut_short_and_between_records_is_not() {
    let mut client = layer(true);
    let record = sent_of(&mut client, b"data");
    let whole = |eof| received(&mut layer(false), &record, eof);
    assert_eq!(whole(false), Ok((b"data".to_vec(), false)));
    for len in [1, 4, 5, 6, record.len() - 1] {
        let mut server = layer(false);
        let part = &record[..len];
        assert_eq!(received(&mut server, part, false), Ok((Vec::new(), false)));
        let told = received(&mut server, &[], true);
        assert_eq!(told, Err(RecordError::Truncated), "{len} bytes");
    }
    let mut server = layer(false);
    assert!(received(&mut server, &record, false).is_ok());
    assert_eq!(received(&mut server, &[], true), Ok((Vec::new(), true)));
}

#[test]
fn end_of_the_peer_comes_behind_its_data_and_nothing_comes_behind_it() {
    let (mut server, mut client) = (layer(false), layer(true));
    let mut records = sent_of(&mut client, b"data");
    client.end();
    records.extend(sent(&mut client));
    records.extend(sent_of(&mut client, b"late"));
    assert_eq!(
        received(&mut server, &records, false),
        Ok((b"data".to_vec(), false))
    );
    assert!(server.peer_has_ended());
}

/// Bytes of records of full size in a buffer.
const PLAIN_OF_BUF: usize =
    SEALED_BYTES_MAX as usize / (PLAIN_BYTES_MAX + EXTRA_BYTES) * PLAIN_BYTES_MAX;

/// Sends `len` bytes in turns that may cost `units_max` each: how many of them each send brings
/// to the peer.
fn opened_of_sends(server: &mut RecordLayer, len: u32, units_max: u64) -> Vec<usize> {
    let mut client = layer(true);
    let region = Region::anonymous(len.into()).expect("room");
    let plain: Vec<u8> = (0..len).map(|n| (n * 7 + n / 256) as u8).collect();
    mem::copy_in(region.range(0, len), &plain);
    let mut batch = Batch::new();
    batch.payload(region.range(0, len));
    server.take(batch);
    let (mut came, mut sends) = (Vec::new(), Vec::new());
    while server.has_output() {
        let bytes = work::take_turn(&mut 0, units_max, || sent(server));
        let before = came.len();
        for part in bytes.chunks(SEALED_BYTES_MAX as usize / 2) {
            came.extend(received(&mut client, part, false).expect("data").0);
        }
        sends.push(came.len() - before);
    }
    assert!(came == plain);
    sends
}

/// The same of a MiB where more than one buffer of a send is not to be had.
fn sends_one_buffer_at_a_time(server: &mut RecordLayer, units_max: u64) {
    let sends = opened_of_sends(server, 1 << 20, units_max);
    let rest = (1 << 20) - 4 * PLAIN_OF_BUF;
    assert_eq!(sends, [[PLAIN_OF_BUF; 4].as_slice(), &[rest]].concat());
}

/// A layer whose sends have several buffers.
fn target() -> RecordLayer {
    let mut target = layer(false);
    target.count_to(&pool());
    target
}

#[test]
fn batch_of_a_target_leaves_in_one_send_of_several_buffers() {
    let sends = |len| opened_of_sends(&mut target(), len, u64::MAX);
    assert_eq!(sends(1 << 20), [1 << 20]);
    let most = SEALED_BUFS_MAX * PLAIN_OF_BUF;
    assert_eq!(sends(2 << 20), [most, (2 << 20) - most]);
}

#[test]
fn batch_of_a_host_leaves_in_sends_of_a_buffer_each() {
    sends_one_buffer_at_a_time(&mut layer(false), u64::MAX);
}

#[test]
fn turn_whose_share_is_used_up_sends_one_buffer() {
    sends_one_buffer_at_a_time(&mut target(), 1);
}

#[test]
fn host_whose_share_is_used_up_is_sent_one_buffer_at_a_time() {
    let mut server = layer(false);
    let pool = pool();
    let of_host = pool.of(Share::new(pool.budget().clone()));
    let _held: Vec<Buf> = std::iter::from_fn(|| of_host.get(FEW_RECORDS_BYTES)).collect();
    server.count_to(&of_host);
    sends_one_buffer_at_a_time(&mut server, u64::MAX);
}

#[test]
fn idle_layer_holds_little_more_than_its_keys() {
    let (mut one, mut other) = (layer(true), layer(false));
    let record = sent_of(&mut one, b"a command");
    let (data, _) = received(&mut other, &record, false).expect("opened");
    assert_eq!(data, b"a command");
    for layer in [&one, &other] {
        assert!(layer.cipher.is_none() && layer.stage.is_none() && layer.unsealed.is_none());
        assert_eq!(layer.ahead.capacity(), 0);
    }
    // A connection may hold 8 KiB more over TLS than in the clear: `tls` has the rest of them.
    assert!(size_of::<RecordLayer>() <= size_of::<Secured>() + 1024);
}

//! Numbers of standards and of other programs, through our own records and binders.
//!
//! RFC 8448 has no trace of SHA-384, of KeyUpdate or of external keys: those numbers were
//! computed apart, by HKDF and AES-GCM of Python's `cryptography` (OpenSSL), which gives those
//! of the RFC, too.

use auth::Secret;
use auth::psk::{Derivation, PskHash, TlsPsk};
use mem::{Budget, Pool};

use crate::HandshakeError;
use crate::cipher::{AesGcm, CipherSource, Way};
use crate::hello::{Offer, binder_of, chosen_psk, finished_of};
use crate::psk_handshake::KnownPsks;
use crate::records::{
    Alert, ContentType, EXTRA_BYTES, Opened, Opener, Plain, RecordError, Sealed, Sealer,
};

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8; 2]| {
        let pair = std::str::from_utf8(pair).expect("ASCII");
        u8::from_str_radix(pair, 16).expect("digits")
    };
    digits.as_chunks::<2>().0.iter().map(byte).collect()
}

fn secret(text: &str) -> Secret {
    Secret::new(hex(text))
}

/// A record of `plain`.
fn sealed(sealer: &mut Sealer, content: ContentType, plain: &[u8]) -> Vec<u8> {
    let mut record = vec![0; plain.len() + EXTRA_BYTES];
    let pieces = [Plain::Bytes(plain)].into_iter();
    sealer.seal(content, pieces, plain.len(), Sealed::Bytes(&mut record));
    record
}

/// What a record is, and its data.
fn opened(opener: &mut Opener, record: &[u8]) -> (Result<Opened, RecordError>, Vec<u8>) {
    let mut stage = Pool::new(Budget::new(8 << 20))
        .expect("room")
        .stage_of(32 << 10);
    assert_eq!(Opener::record_bytes(record), Ok(Some(record.len())));
    let told = opener.open(record, None, &mut stage);
    (told, stage.bytes().to_vec())
}

const DATA: Result<Opened, RecordError> = Ok(Opened::Data { direct: 0 });

/// RFC 8448, section 3: application traffic secrets of both sides.
const CLIENT_SECRET: &str = "9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5";
const SERVER_SECRET: &str = "a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643";

#[test]
fn traffic_keys_are_those_of_rfc_8448() {
    let hash = PskHash::Sha256;
    for (of, key, iv) in [
        (
            CLIENT_SECRET,
            "17422dda596ed5d9acd890e3c63f5051",
            "5b78923dee08579033e523d9",
        ),
        (
            SERVER_SECRET,
            "9f02283b6c9c07efc26bb9f2ac92e356",
            "cf782b88dd83549aadf1e984",
        ),
    ] {
        let of = secret(of);
        assert_eq!(hash.expand_label(&of, "key", &[], 16), secret(key));
        assert_eq!(hash.expand_label(&of, "iv", &[], 12), secret(iv));
    }
}

#[test]
fn records_of_the_client_are_those_of_rfc_8448() {
    let data = hex(
        "1703030043a23f7054b62c94d0affafe8228ba55cbefacea42f914aa66bcab3f2b9819a8a5b46b395bd54a
         9a20441e2b62974e1f5a6292a2977014bd1e3deae63aeebb21694915e4",
    );
    let alert = hex("1703030013c9872760655666b74d7ff1153efd6db6d0b0e3");
    let plain: Vec<u8> = (0..50).collect();
    let hash = PskHash::Sha256;
    let mut sealer = Sealer::new(hash, secret(CLIENT_SECRET));
    let content = ContentType::ApplicationData;
    assert_eq!(sealed(&mut sealer, content, &plain), data);
    assert_eq!(sealer.alert(Alert::CloseNotify), alert);
    let mut opener = Opener::new(hash, secret(CLIENT_SECRET));
    assert_eq!(opened(&mut opener, &data), (DATA, plain));
    assert_eq!(opened(&mut opener, &alert), (Ok(Opened::End), Vec::new()));
}

/// The server's first is a NewSessionTicket, then come data and close_notify.
#[test]
fn records_of_the_server_are_those_of_rfc_8448() {
    let ticket = hex(
        "17030300de3a6b8f90414a97d6959c3487680de5134a2b240e6cffac116e95d41d6af8f6b580dcf3d11d63
         c758db289a015940252f55713e061dc13e078891a38efbcf5753ad8ef170ad3c7353d16d9da773b9ca7f2b
         9fa1b6c0d4a3d03f75e09c30ba1e62972ac46f75f7b981be63439b2999ce13064615139891d5e4c5b406f1
         6e3fc181a77ca475840025db2f0a77f81b5ab05b94c01346755f69232c86519d86cbeeac87aac347d143f9
         605d64f650db4d023e70e952ca49fe5137121c74bc2697687e248746d6df353005f3bce18696129c815355
         6b3b6c6779b37bf15985684f",
    );
    let data = hex(
        "17030300432e937e11ef4ac740e538ad36005fc4a46932fc3225d05f82aa1b36e30efaf97d90e6dffc602d
         cb501a59a8fcc49c4bf2e5f0a21c0047c2abf332540dd032e167c2955d",
    );
    let alert = hex("1703030013b58fd67166ebf599d24720cfbe7efa7a8864a9");
    let opener = Opener::new(PskHash::Sha256, secret(SERVER_SECRET));
    let mut opener = opener.taking_tickets();
    let nothing = (Ok(Opened::Nothing), Vec::new());
    assert_eq!(opened(&mut opener, &ticket), nothing);
    assert_eq!(opened(&mut opener, &data), (DATA, (0..50).collect()));
    assert_eq!(opened(&mut opener, &alert), (Ok(Opened::End), Vec::new()));
}

/// Computed apart, by the label "traffic upd" (RFC 8446, section 7.2).
#[test]
fn key_update_leads_to_the_keys_that_others_compute() {
    let mut sealer = Sealer::new(PskHash::Sha256, secret(CLIENT_SECRET));
    let mut opener = Opener::new(PskHash::Sha256, secret(CLIENT_SECRET));
    let update = sealer.update();
    let told = opened(&mut opener, &update).0;
    assert_eq!(told, Ok(Opened::KeyUpdate { is_wanted: false }));
    let after = hex("170303001669bdc5e3b193eb8c2c845ffe923745bc6d606bf4b7bb");
    let content = ContentType::ApplicationData;
    assert_eq!(sealed(&mut sealer, content, b"after"), after);
    assert_eq!(opened(&mut opener, &after), (DATA, b"after".to_vec()));
}

/// Computed apart: a secret of the bytes 0 to 47, TLS_AES_256_GCM_SHA384.
#[test]
fn records_of_sha_384_are_those_that_others_compute() {
    let of = || Secret::new((0..48).collect::<Vec<u8>>());
    let mut sealer = Sealer::new(PskHash::Sha384, of());
    let mut opener = Opener::new(PskHash::Sha384, of());
    let content = ContentType::ApplicationData;
    let first = hex("17030300153f52194802de10f37c91a7a0ee4a6ad66144240fea");
    assert_eq!(sealed(&mut sealer, content, b"weft"), first);
    let update = hex("1703030016851179f1c4580403b2c85916c30beb04d3e3ee8689dc");
    assert_eq!(sealer.update(), update);
    let after = hex("17030300155bf0c5f3904b1dbd4da495ec347434e35202fd8387");
    assert_eq!(sealed(&mut sealer, content, b"weft"), after);
    assert_eq!(opened(&mut opener, &first), (DATA, b"weft".to_vec()));
    let told = opened(&mut opener, &update).0;
    assert_eq!(told, Ok(Opened::KeyUpdate { is_wanted: false }));
    assert_eq!(opened(&mut opener, &after), (DATA, b"weft".to_vec()));
}

/// What the cipher makes of `plain` in pieces of `piece` bytes, and the tag.
fn enciphered(key: &[u8], nonce: &[u8], header: &[u8], plain: &[u8], piece: usize) -> Vec<u8> {
    let mut gcm = AesGcm::new(key, Way::Seal);
    gcm.begin(nonce.try_into().expect("12 bytes"), header);
    let mut out = vec![0; plain.len()];
    for (from, to) in plain.chunks(piece).zip(out.chunks_mut(piece)) {
        let from = CipherSource {
            at: from.as_ptr(),
            len: from.len(),
        };
        // SAFETY: both are borrowed, and as long as each other.
        unsafe { gcm.update(from, to.as_mut_ptr()) };
    }
    out.extend(gcm.tag());
    out
}

/// The test cases of GCM as NIST was given them, by their numbers.
#[test]
fn cipher_gives_the_test_cases_of_gcm() {
    const KEY: &str = "feffe9928665731c6d6a8f9467308308";
    const NONCE: &str = "cafebabefacedbaddecaf888";
    const HEADER: &str = "feedfacedeadbeeffeedfacedeadbeefabaddad2";
    const PLAIN: &str = "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95
        956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39";
    let zeros = |len: usize| "00".repeat(len);
    let nonce = zeros(12);
    for (case, key, nonce, header, plain, wanted) in [
        (
            1,
            zeros(16),
            &*nonce,
            "",
            "",
            "58e2fccefa7e3061367f1d57a4e7455a",
        ),
        (
            2,
            zeros(16),
            &nonce,
            "",
            &*zeros(16),
            "0388dace60b6a392f328c2b971b2fe78 ab6e47d42cec13bdf53a67b21257bddf",
        ),
        (
            4,
            KEY.into(),
            NONCE,
            HEADER,
            PLAIN,
            "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e21d514b25466931c7d8f
             6a5aac84aa051ba30b396a0aac973d58e091 5bc94fbc3221a5db94fae95ae7121a47",
        ),
        (
            13,
            zeros(32),
            &nonce,
            "",
            "",
            "530f8afbc74536b9a963b4f1c4cb738b",
        ),
        (
            14,
            zeros(32),
            &nonce,
            "",
            &zeros(16),
            "cea7403d4d606b6e074ec5d3baf39d18 d0d1c8a799996bf0265b98b5d48ab919",
        ),
        (
            16,
            KEY.repeat(2),
            NONCE,
            HEADER,
            PLAIN,
            "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b0
             8b1056828838c5f61e6393ba7a0abcc9f662 76fc6ece0f4e1768cddf8853bb2d551b",
        ),
    ] {
        let [key, nonce, header, plain] = [&*key, nonce, header, plain].map(hex);
        for piece in [1, 7, 16, 24, 1000] {
            let told = enciphered(&key, &nonce, &header, &plain, piece);
            assert_eq!(told, hex(wanted), "case {case} in pieces of {piece}");
        }
    }
}

/// RFC 8448, section 4: a ClientHello with early data, which resumes by a ticket.
const RESUMING_HELLO: &str = "010001fc03031bc3ceb6bbe39cff938355b5a50adb6db21b7a6af649d7b4bc41
    9d7876487d95000006130113031302010001cd0000000b0009000006736572766572ff01000100000a0014001200
    1d00170018001901000101010201030104003300260024001d0020e4ffb68ac05f8d96c99da26698346c6be16482
    badddafe051a66b4f18d668f0b002a0000002b0003020304000d0020001e04030503060302030804080508060401
    0501060102010402050206020202002d00020101001c000240010015005700000000000000000000000000000000
    00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000
    00000000000000000000000000000000000000000000000000002900dd00b800b22c035d829359ee5ff7af4ec900
    000000262a6494dc486d2c8a34cb33fa90bf1b0070ad3c498883c9367c09a2be785abc55cd226097a3a982117283
    f82a03a143efd3ff5dd36d64e861be7fd61d2827db279cce145077d454a3664d4e6da4d29ee03725a6a4dafcd0fc
    67d2aea70529513e3da2677fa5906c5b3f7d8f92f228bda40dda721470f9fbf297b5aea617646fac5c03272e9707
    27c621a79141ef5f7de6505e5bfbc388e93343694093934ae4d357fad6aacb0021203add4fb2d8fdf822a0ca3cf7
    678ef5e88dae990141c5924d57bb6fa31b9e5f9d";
/// The key of that ticket, and the binder in it.
const RESUMING_KEY: &str = "4ecd0eb6ec3b4d87f5d6028f922ca4c5851a277fd41311c9e62d2c9492e1c4f3";
const RESUMING_BINDER: &str = "3add4fb2d8fdf822a0ca3cf7678ef5e88dae990141c5924d57bb6fa31b9e5f9d";

#[test]
fn binder_is_computed_as_rfc_8448_does() {
    let (hash, hello) = (PskHash::Sha256, hex(RESUMING_HELLO));
    let offer = Offer::read(&hello).expect("a ClientHello");
    assert_eq!(
        hash.digest(offer.truncated),
        hex("63224b2e4573f2d3454ca84b9d009a04f6be9e05711a8396473aefa01e924a14")
    );
    let early = hash.extract(&hex(RESUMING_KEY));
    let of_early = secret("9b2188e9b2fc6d64d71dc329900e20bb41915000f678aa839cbb797cb7d8332c");
    assert_eq!(early, of_early);
    let key = hash.expand_label(&early, "res binder", &hash.digest(&[]), 32);
    let binder_key = secret("69fe131a3bbad5d63c64eebcc30e395b9d8107726a13d074e389dbc8a4e47256");
    assert_eq!(key, binder_key);
    let binder = finished_of(hash, &key, offer.truncated);
    assert_eq!(binder, hex(RESUMING_BINDER));
}

fn psk(hash: PskHash, identity: &str, key: &[u8]) -> TlsPsk {
    TlsPsk {
        identity: identity.into(),
        secret: Secret::new(key),
        hash,
        derivation: Derivation::Standard,
    }
}

/// Computed apart, by the label "ext binder", over the same message.
#[test]
fn binder_of_an_external_key_is_the_one_that_others_compute() {
    let hello = hex(RESUMING_HELLO);
    let truncated = Offer::read(&hello).expect("a ClientHello").truncated;
    for (hash, binder) in [
        (
            PskHash::Sha256,
            "8db05c13aad38e0e6d36c8ce8316e590e60962844e550f3c2c679b6b0bedc785",
        ),
        (
            PskHash::Sha384,
            "2b8fe350120900887a632e09a24cc130cadbf4255340e230d389610a95c25cab
             fef526ec2f39067bb8e36dee0e722761",
        ),
    ] {
        let key: Vec<u8> = (0..hash.digest_bytes() as u8).collect();
        assert_eq!(binder_of(&psk(hash, "", &key), truncated), hex(binder));
    }
}

/// Whatever is asked for has this key.
struct Always(Vec<u8>);

impl KnownPsks for Always {
    fn psks_of(&self, identity: &str) -> Vec<TlsPsk> {
        vec![psk(PskHash::Sha256, identity, &self.0)]
    }

    fn has_any(&self) -> bool {
        true
    }
}

#[test]
fn ticket_is_not_taken_for_an_external_key() {
    let hello = hex(RESUMING_HELLO);
    let told = chosen_psk(&hello, &Always(hex(RESUMING_KEY)));
    assert!(matches!(told, Err(HandshakeError::WrongKey(_))), "{told:?}");
    // With the binder of an external key it is one.
    let truncated = Offer::read(&hello).expect("a ClientHello").truncated.len();
    let mut hello = hello;
    let key = psk(PskHash::Sha256, "", &hex(RESUMING_KEY));
    let binder = binder_of(&key, &hello[..truncated]);
    let at = hello.len() - binder.len();
    hello[at..].copy_from_slice(&binder);
    let told = chosen_psk(&hello, &Always(hex(RESUMING_KEY)));
    assert_eq!(told.expect("the key").secret, secret(RESUMING_KEY));
}

use sha2::{Digest as _, Sha256};

use super::*;
use crate::psk::Derivation;

const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6";
const SUBSYSTEM: &str = "nqn.2026-01.io.weft:disk";

/// Bytes that follow each other by `step`, from `start` on.
fn steps(start: u8, step: u8, len: usize) -> Vec<u8> {
    (0..len)
        .map(|n| start.wrapping_add(step.wrapping_mul(n as u8)))
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    crate::binary::hex(bytes)[2..].to_owned()
}

/// A key of bytes that count from `start` on.
fn key(hash: DhchapHash, start: u8, is_transformed: bool) -> DhchapKey {
    let key = DhchapKey::new(hash, &mut |bytes| {
        bytes.copy_from_slice(&steps(start, 1, bytes.len()));
    });
    let text = key.interchange();
    match is_transformed {
        true => key,
        false => DhchapKey::parse(&format!("DHHC-1:00{}", &text[9..])).expect("a key"),
    }
}

/// Of each group the digest of its prime, of the public values of two exponents, and of what
/// both make: computed apart, with the integers of Python.
const GROUPS: [(DhchapGroup, [&str; 4]); 5] = [
    (
        DhchapGroup::Ffdhe2048,
        [
            "9cd3b7f336872f46c09428d1bbc19877a4d440512cda8d1c1cf0cd6e33698966",
            "e7879c95c854295d181bcf0ab188f1b301db429f0d5643308da7a63345db0534",
            "6279b52930d8aa0b2ad868e7dd155eecf694fb187c267ed7a03b50a8f8439519",
            "385215cf17c450a9032f9d7f3c1960c4c042ed1aa777eec45d135276de859014",
        ],
    ),
    (
        DhchapGroup::Ffdhe3072,
        [
            "0eaf67db3a839156d5013494a5318a772b5697d270d721f37f092efc69ea5a17",
            "23db0eb472fdaefe822535879c28ea47f493d594333b8fceea782b11dca2a754",
            "8d639d2b238c540496f02818ba8a51e53902f83bf50d7795b8b777ded50e61d2",
            "ea5e22bb4062a39be8c121fdeda437fcaf3594632da99723596ddbc7cec0a195",
        ],
    ),
    (
        DhchapGroup::Ffdhe4096,
        [
            "4648414224ac881b3d0dc59b466f96d06a558278776807797ecf1f66ff397b3e",
            "d3adb9ea14c6cf3797e6c16a6d137e0b1dd5cc65ff767a60a1a489cba105baf5",
            "53fcb0346b4a36110698025c13f5203f26af9a4f8a1ce4cc6d8b3890ae6fa434",
            "1fc43e529cf2113be776224949f05025efdbfc93838c1a6145bbd0cef2c92382",
        ],
    ),
    (
        DhchapGroup::Ffdhe6144,
        [
            "227ac9066b3ddd9e193670cda2388fa884f65ba0cf98b742d1fe77a6687c79c7",
            "75cc431fd1828cc84aee158134aa5cb535dd9023b61585c7893e9b15ef6cae0a",
            "15b59d511b62d2283c2453764fb7ac1021d5b79aeae97a6c0e45e0ed3260c67c",
            "9ddbad1f4ecefe35ba03db99427bea942667f29f652638e7a04e3a2f7cdfd806",
        ],
    ),
    (
        DhchapGroup::Ffdhe8192,
        [
            "770b14efaf6f049929c523113b3fa99a8d11dab1b18af3609590122075d19833",
            "17afe8866f5459beaa0cb911b1f4a942e6dfe62fc792c951bdd41e1a2b3c6f6b",
            "260cdca49cbf1c895de1efac8e283ba2547909eb9ccfe682ce3c76ac5851ea09",
            "4602912985950944f2ca7e7f7c735f66489553fbf51500e01f5a4c1a84c6d2fe",
        ],
    ),
];

#[test]
fn groups_are_those_that_were_computed_apart() {
    for (group, [prime, first, second, shared]) in GROUPS {
        let digest = |bytes: &[u8]| hex(&Sha256::digest(bytes));
        let field = group.field().expect("no NULL group");
        assert_eq!(digest(&field.prime()), prime, "{group}");
        let pair = |start, step| {
            DhchapKeyPair::new(group, &mut |bytes| {
                bytes.copy_from_slice(&steps(start, step, bytes.len()));
            })
            .expect("no NULL group")
        };
        let (one, other) = (pair(0, 1), pair(200, 255));
        assert_eq!(one.public().len(), group.value_len());
        assert_eq!(digest(one.public()), first, "{group}");
        assert_eq!(digest(other.public()), second, "{group}");
        let made = one.agree(other.public()).expect("a value");
        assert_eq!(digest(made.bytes()), shared, "{group}");
        assert_eq!(other.agree(one.public()), Some(made), "{group}");
    }
}

#[test]
fn values_that_make_a_known_secret_or_are_too_large_are_refused() {
    let group = DhchapGroup::Ffdhe2048;
    let pair = DhchapKeyPair::new(group, &mut |bytes| bytes.fill(7)).expect("no NULL group");
    let prime = group.field().expect("no NULL group").prime();
    let small = |value: u8| {
        let mut bytes = vec![0; group.value_len()];
        bytes[group.value_len() - 1] = value;
        bytes
    };
    let below = |less: u8| {
        let mut bytes = prime.clone();
        *bytes.last_mut().expect("bytes") -= less;
        bytes
    };
    for (value, is_taken) in [
        (small(0), false),
        (small(1), false),
        (small(2), true),
        (below(2), true),
        (below(1), false),
        (below(0), false),
        (vec![0xff; group.value_len()], false),
        (vec![7; group.value_len() - 1], false),
        (vec![7; group.value_len() + 1], false),
        (Vec::new(), false),
    ] {
        assert_eq!(pair.agree(&value).is_some(), is_taken, "{}", hex(&value));
    }
    assert!(DhchapKeyPair::new(DhchapGroup::Null, &mut |_| ()).is_none());
}

/// Hash, whether keys are transformed, whether there is a session key, and the responses of
/// host and controller: computed apart, with the HMAC of Python.
const RESPONSES: [(DhchapHash, bool, bool, &str, &str); 12] = [
    (
        DhchapHash::Sha256,
        false,
        false,
        "e6eca0d6a9286f669f2ff906d36979ee5b2c30a6f79fcf61a4202018fae07d06",
        "14bdfffe8631be2469cbd93b7c4fee4448a5f5a8472dc7a3ac25d24ff5e145b5",
    ),
    (
        DhchapHash::Sha256,
        false,
        true,
        "6f25ae4b755a5547cf0b49fed509f75816e3fd333fa5a15d0f63d4163a4d7fa7",
        "f109a315c75209f66a320e8b6f1a145a0f3db7661d459cf92564975fbf407ddf",
    ),
    (
        DhchapHash::Sha256,
        true,
        false,
        "3854ce184134acee299a167d9a61ada7b81909f9b85ce2e486953ac7d386c6d1",
        "6abc136b73450dfc7667b25fd9c52ea33e44f8399652e36f1bb41bb518fa5d9e",
    ),
    (
        DhchapHash::Sha256,
        true,
        true,
        "3d8d3a9c824e28e27748046e3182f06611ea98c04e15d16887f86040ad00ca92",
        "72f0f88066914488c786fbd7dc1872247f044c29ef48875bb4a32049528ef702",
    ),
    (
        DhchapHash::Sha384,
        false,
        false,
        "068e9b5f18227ced54ed6dcb1dae6e0888225fd593bafb3cb4443a5dbff371758a91dfcc86261d81e536f7f19789266e",
        "03c14bb6ccc37143e75279bed4a1bd6ac3131a617db7d625bb0ec3bc1fde53cd226f110f640f5e4092de849a7c089aa0",
    ),
    (
        DhchapHash::Sha384,
        false,
        true,
        "a01431310382e2b5f7ac15344d857cba2e780e1bf849a9dbdd070f1af79faccc6badff0b3b50f17ae747402c1ebd70b0",
        "f4bf25a61d86d7e104ff76d924afbff6115b6ea10556fbc1371a045b9f65fdfba3a66fa009321ac6f9c6b9f7bcc430f0",
    ),
    (
        DhchapHash::Sha384,
        true,
        false,
        "9d6a96970179dbd9134468c2a9f805ef6a826fa95b79a760a23804e15bf81d3c62b2bc9b4fdfd6ea5fed3e9b40dab280",
        "7c6334ceb07c519093a3ce4e3685aeec92658465c3e9fff1c6da21879de1de49a4629e4e1b903d995b7b15b83953950a",
    ),
    (
        DhchapHash::Sha384,
        true,
        true,
        "ba2a87454619e1262e8b32a6131d62ebd8e92b234458e7570bb24d7fefe12e2c422edf7b9a73c2f46a7460796ac14152",
        "f70f038ab57369f6450b8d83d891f3afe82bc6b967960aeb4a43998b7bc5ef5b7301393617f862ab911dcbbb30285621",
    ),
    (
        DhchapHash::Sha512,
        false,
        false,
        "daa5b74513d6ec7c2ca8f6e115d690843d2d5c76f7adc4d8dcc726181ddcc65ecbfffbd3cba6153951ac31df75ac1a04655e1f282e90f98b5672b180ea340732",
        "ae51aa50e630ac6d24307b9b3f0af6dfdd33d5a5d91396e562f7e2707f06af289327ff4411499afbc938d3696ff7fb8c21dfd169df6895e0aef76d614aafc8db",
    ),
    (
        DhchapHash::Sha512,
        false,
        true,
        "2a77045e0deebc8fd79d8b325d2f9f35d868572ae822acce4212b8d8045cc039e8243226c5176aca3cd1f9f07e1945150463678b9c0abe0f72f0b31ea7a130c9",
        "61ba105b22778f1764f9cd0fa22dd8e8da0efa5bba9cf57b1ae2ad32ee3cd740aca8f6d5682f20f75578c965124bfcada28a17f7fbba7d6351c8fadda9b72dc1",
    ),
    (
        DhchapHash::Sha512,
        true,
        false,
        "4b3c8c0c70ff8dc15b9537202614ab04ba7c1c865bacc76e25c5bfcd078cea3903850eb90d5dd75ed350c9d2fbaaecd608153ed4440e84f3b47410d3721d5010",
        "3f3a27ad578b6c9d2622ff1d26f1708f856de24657229c2ce4ec1f3cef34842eeae8a22fa9c330ece42e9876f6ed1d1d8285ee209cdf8a4d6438d202f0b26594",
    ),
    (
        DhchapHash::Sha512,
        true,
        true,
        "c1c0b048886e92ec5562ba8da67f6c668b288e9b5f37b130b4ad1b1ab2aa45175c6eb32b47edcccb3b46f5c5188be5c35b24cb2cf34a2447d5dcbf4bb2b1395d",
        "8104ca1dd7d057792fbe5006cc8f05a18237fd8a26c00571b5fce67b77adee55861c15061cfa1c576e48b3db6dce29674dd6bd822411d4b692c6616f1e187376",
    ),
];

#[test]
fn responses_are_those_that_were_computed_apart() {
    for (hash, is_transformed, has_group, host, controller) in RESPONSES {
        let session_key = hash.session_key(&Secret::new(steps(0, 3, 256)));
        let terms = DhchapTerms {
            hash,
            session_key: has_group.then_some(&session_key),
            t_id: 0x1234,
            sc_c: 0,
            hostnqn: HOST,
            subnqn: SUBSYSTEM,
        };
        let [c1, c2] = [7, 11].map(|step| steps(0, step, hash.len()));
        let [of_host, of_controller] = [0, 100].map(|start| key(hash, start, is_transformed));
        let made = terms.response(DhchapSide::Host, &of_host, &c1, 0x0102_0304);
        assert_eq!(hex(made.bytes()), host);
        assert!(made.matches(made.bytes()) && !made.matches(&made.bytes()[1..]));
        let made = terms.response(DhchapSide::Controller, &of_controller, &c2, 0xa1a2_a3a4);
        assert_eq!(hex(made.bytes()), controller);
    }
}

/// The PSKs of the same challenges and session key; of those that are keys for TLS, the digest in
/// the identity and the key that follow.
const PSKS: [(DhchapHash, &str, Option<[&str; 2]>); 3] = [
    (
        DhchapHash::Sha256,
        "198a8579bc81ff31dfc2a72cad828c64d90d65dbde456968ea0505cc2cec802a",
        Some([
            "uuCVoH4wPcKF+GowfXypJg/F+kQJxSj0neAi8fpYe+A=",
            "6fbb403879533061cad54c08c2c449822e30fcf04295d561b37a69a4f60f25b5",
        ]),
    ),
    (
        DhchapHash::Sha384,
        "2666ca8d5d947d0069d3a195d1c193b3c391a571c02abe1aae9d70cf738a82ad5baa049bddd90ef1d1a9bdfe7da8ae86",
        Some([
            "5nH2f6greiG7QmdWy9/sCs94rcaUA3an8otrNHqb6o+MIJmu2bfst1/9d7n3Y5vU",
            "10763a51e71f6c7de819ea5091a7194bd0564b38657e5edcd5fcd264311e9fd9d2b1bf5ab6abf8a74dcb4475216327d9",
        ]),
    ),
    (
        DhchapHash::Sha512,
        "2f967e46b627f8d5f1e5819728f9837e83816cd16c072f274b454f08f648f2a1f6c5fcc5e2c95c36f84b7615644e52f3731cc2fcc2c0bed995443a32a3474e83",
        None,
    ),
];

#[test]
fn generated_psks_are_those_that_were_computed_apart() {
    for (hash, psk, of_tls) in PSKS {
        let shared = Secret::new(steps(0, 3, 256));
        let session_key = hash.session_key(&shared);
        let [c1, c2] = [7, 11].map(|step| steps(0, step, hash.len()));
        // What Linux gives HMAC as its key makes no other.
        for key in [&session_key, &shared] {
            assert_eq!(hex(hash.hmac(key, &[&c1, &c2]).bytes()), psk);
        }
        let made = generated_psk(hash, &session_key, &c1, &c2);
        assert_eq!(made.is_some(), hash.is_of_tls());
        let made = made.map(|psk| psk.tls_psk(HOST, SUBSYSTEM, Derivation::Standard));
        let made = made.map(|psk| (psk.identity, hex(psk.secret.bytes())));
        let wanted = of_tls.map(|[digest, secret]| {
            let identity = format!("NVMe1G0{} {HOST} {SUBSYSTEM} {digest}", hash as u8);
            (identity, secret.to_owned())
        });
        assert_eq!(made, wanted);
    }
}

#[test]
fn secret_is_read_as_it_is_written() {
    for (text, hash) in [
        (
            "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:",
            None,
        ),
        (
            "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:",
            Some(DhchapHash::Sha256),
        ),
        (
            "DHHC-1:02:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vcSEgBQ==:",
            Some(DhchapHash::Sha384),
        ),
        (
            "DHHC-1:03:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+P4zODhA=:",
            Some(DhchapHash::Sha512),
        ),
    ] {
        let key = DhchapKey::parse(text).expect("a secret");
        assert_eq!(key.interchange(), text);
        assert_eq!(format!("{key:?}"), "DhchapKey(..)");
        if let Some(hash) = hash {
            assert_eq!(key, super::tests::key(hash, 0, true));
        }
    }
}

#[test]
fn damaged_secret_is_refused() {
    let key = key(DhchapHash::Sha256, 0, true).interchange();
    for (text, why) in [
        (key.replace(":01:", ":02:"), DhchapKeyError::Length),
        (key.replace(":01:", ":04:"), DhchapKeyError::Form),
        (key.replace(":01:", ":1:"), DhchapKeyError::Form),
        (key.replace("AAEC", "AAED"), DhchapKeyError::Checksum),
        (key.replace("AAEC", "AA=C"), DhchapKeyError::Form),
        (key.trim_end_matches(':').to_owned(), DhchapKeyError::Form),
        (format!("{key}:"), DhchapKeyError::Form),
        (key.replace("DHHC", "NVMeTLSkey"), DhchapKeyError::Form),
        ("DHHC-1:00:AAAAAA==:".to_owned(), DhchapKeyError::Length),
        ("DHHC-1:00:AAAAAAA=:".to_owned(), DhchapKeyError::Checksum),
        ("DHHC-1:00:AAAA:".to_owned(), DhchapKeyError::Length),
        (String::new(), DhchapKeyError::Form),
    ] {
        assert_eq!(DhchapKey::parse(&text), Err(why), "{text}");
    }
}

#[test]
fn names_and_numbers_name_the_same() {
    for hash in DhchapHash::ALL {
        assert_eq!(DhchapHash::from_number(hash as u8), Some(hash));
        assert_eq!(DhchapHash::from_name(&hash.to_string()), Some(hash));
    }
    for group in DhchapGroup::ALL {
        assert_eq!(DhchapGroup::from_number(group as u8), Some(group));
        assert_eq!(DhchapGroup::from_name(&group.to_string()), Some(group));
    }
    assert_eq!(DhchapHash::from_number(4), None);
    assert_eq!(DhchapGroup::from_number(6), None);
    assert_eq!(DhchapHash::from_name("md5"), None);
}

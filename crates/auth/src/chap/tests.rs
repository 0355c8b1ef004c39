use super::*;
use crate::binary;

/// What another implementation of the four digests makes of identifier a7h, the
/// secret below and the challenge 3, 10, 17, ... of 32 bytes.
const KNOWN: [(Algorithm, &str); 4] = [
    (Algorithm::Md5, "0xf6ded7b471393e838da4c26dbcb5eb7d"),
    (
        Algorithm::Sha1,
        "0x16f79fb9cb9466a8a34f7ab8083556282a7beaf4",
    ),
    (
        Algorithm::Sha256,
        "0x0d7a2324a4b709a9788c50cb3e52bcedb4e61750e9a21311b835e9d6f2a53bc7",
    ),
    (
        Algorithm::Sha3_256,
        "0x1fd380226a4af7632aaa9c434965165eb4f24b897e94d2d759d9a002a247fa64",
    ),
];

fn counting() -> impl FnMut(&mut [u8]) {
    let mut so_far = 0u8;
    move |bytes: &mut [u8]| {
        for byte in bytes {
            *byte = so_far.wrapping_mul(7).wrapping_add(3);
            so_far += 1;
        }
    }
}

#[test]
fn responses_are_what_others_compute() {
    let secret = Secret::new(*b"weft keeps secrets");
    let mut challenge = [0; 32];
    counting()(&mut challenge);
    for (algorithm, known) in KNOWN {
        let response = algorithm.respond(0xa7, &secret, &challenge);
        assert_eq!(binary::hex(response.bytes()), known, "{algorithm}");
    }
}

#[test]
fn a_challenge_is_answered_only_with_its_secret() {
    let secret = Secret::new(*b"a secret of enough bytes");
    for algorithm in Algorithm::ALL {
        let challenge = Challenge::new(algorithm, &mut counting());
        let response = algorithm.respond(challenge.id, &secret, &challenge.bytes);
        assert!(challenge.is_answered_by(response.bytes(), &secret));
        let mut wrong = response.bytes().to_vec();
        *wrong.last_mut().expect("bytes") ^= 1;
        assert!(!challenge.is_answered_by(&wrong, &secret));
        assert!(!challenge.is_answered_by(&response.bytes()[1..], &secret));
        assert!(!challenge.is_answered_by(&[], &secret));
        let other = Secret::new(*b"another secret of enough");
        assert!(!challenge.is_answered_by(response.bytes(), &other));
        assert!(challenge.is_reflected_by(&challenge.bytes.clone()));
        assert!(!challenge.is_reflected_by(&[0; CHALLENGE_LEN]));
    }
}

#[test]
fn algorithms_have_numbers_and_names() {
    let numbers: Vec<_> = (0..=9).filter_map(Algorithm::from_number).collect();
    assert_eq!(
        numbers,
        [
            Algorithm::Md5,
            Algorithm::Sha1,
            Algorithm::Sha256,
            Algorithm::Sha3_256
        ]
    );
    for algorithm in Algorithm::ALL {
        assert_eq!(
            Algorithm::from_name(&algorithm.to_string()),
            Some(algorithm)
        );
    }
    assert_eq!(Algorithm::from_name("sha512"), None);
}

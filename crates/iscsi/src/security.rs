//! The SecurityNegotiation stage, as the target goes through it (RFC 7143,
//! sections 6.3.2, 9.2.1 and 12.1).

use auth::{Algorithm, Challenge, binary, chap};

use crate::config::{Auth, Credentials};
use crate::login::LoginRefused;
use crate::text::Key;
use crate::text::{self, NONE, VALUE_LEN_MAX};

const AUTH_METHOD: &str = "AuthMethod";
const CHAP: &str = "CHAP";
/// Characters of an initiator's list of algorithms that a reason quotes.
const ALGORITHMS_SHOWN_MAX: usize = 32;

/// The keys of the stage. Which of them may come is the progress's to say.
const KEYS: [&str; 6] = [
    AUTH_METHOD,
    "CHAP_A",
    "CHAP_N",
    "CHAP_R",
    "CHAP_I",
    "CHAP_C",
];

/// The keys, as [`support`](crate::support) tells of them.
pub(crate) fn listed() -> impl Iterator<Item = Key> {
    KEYS.iter().map(|name| {
        let is_list = [AUTH_METHOD, "CHAP_A"].contains(name);
        Key {
            name,
            section: if *name == AUTH_METHOD {
                "12.1"
            } else {
                "12.1.3"
            },
            leading_only: false,
            in_discovery: true,
            is_security: true,
            how: if is_list { "list" } else { "declared" },
        }
    })
}

/// Whether `key` belongs to this stage and to no other.
pub(crate) fn is_security(key: &str) -> bool {
    KEYS.contains(&key)
}

/// What the initiator is to send next.
#[derive(Clone, Debug)]
enum SecurityProgress {
    /// AuthMethod.
    Method,
    /// CHAP_A.
    Algorithm,
    /// CHAP_N and CHAP_R, the answer to this, and maybe CHAP_I and CHAP_C.
    Response(Challenge),
    /// Nothing.
    Done,
}

/// The security negotiation of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Security {
    auth: Auth,
    progress: SecurityProgress,
}

impl Security {
    /// The negotiation of what `auth` asks for.
    pub fn new(auth: Auth) -> Self {
        Security {
            auth,
            progress: SecurityProgress::Method,
        }
    }

    /// Whether the stage may be left, or left out.
    pub fn is_proved(&self) -> bool {
        self.auth.chap.is_none() || matches!(self.progress, SecurityProgress::Done)
    }

    /// What the initiator proves.
    pub fn credentials(&self) -> Option<&Credentials> {
        self.auth.chap.as_ref()
    }

    /// Whether something was begun that is not finished.
    pub fn is_open(&self) -> bool {
        matches!(
            self.progress,
            SecurityProgress::Algorithm | SecurityProgress::Response(_)
        )
    }

    /// Takes the security keys of a request and answers them. Keys out of their
    /// order or turn are an error of the initiator, whatever they contain.
    pub fn receive(
        &mut self,
        pairs: &[(&str, &str)],
        random: &mut dyn FnMut(&mut [u8]),
        out: &mut Vec<u8>,
    ) -> Result<(), LoginRefused> {
        let came: Vec<_> = pairs
            .iter()
            .filter(|(key, _)| is_security(key))
            .copied()
            .collect();
        if came.is_empty() {
            return Ok(());
        }
        let keys = Keys::of(&came)?;
        // What fails once stays failed: the connection closes.
        match std::mem::replace(&mut self.progress, SecurityProgress::Done) {
            SecurityProgress::Method => self.choose_method(keys.only([AUTH_METHOD])?[0], out),
            SecurityProgress::Algorithm => self.challenge(keys.only(["CHAP_A"])?[0], random, out),
            SecurityProgress::Response(challenge) => self.check(&challenge, &keys, out),
            SecurityProgress::Done => Err(LoginRefused::error(format!(
                "{} comes where nothing is left to be proved",
                came[0].0
            ))),
        }
    }

    /// The first method of the initiator's list that will do (section 12.1).
    fn choose_method(&mut self, list: &str, out: &mut Vec<u8>) -> Result<(), LoginRefused> {
        let method = if self.auth.chap.is_some() { CHAP } else { NONE };
        if !list.split(',').any(|item| item == method) {
            return Err(match method {
                CHAP => LoginRefused::without_chap(),
                _ => LoginRefused::authentication(
                    "it wants to prove itself, and the target has no `chap`: turn its \
                     authentication off, or configure it",
                ),
            });
        }
        text::push(out, AUTH_METHOD, method);
        self.progress = match self.auth.chap {
            Some(_) => SecurityProgress::Algorithm,
            None => SecurityProgress::Done,
        };
        Ok(())
    }

    /// The first algorithm of the initiator's list that is taken, and a
    /// challenge for it.
    fn challenge(
        &mut self,
        list: &str,
        random: &mut dyn FnMut(&mut [u8]),
        out: &mut Vec<u8>,
    ) -> Result<(), LoginRefused> {
        let offered = list.split(',').filter_map(|item| {
            let number = text::number(item)?;
            Algorithm::from_number(u8::try_from(number).ok()?)
        });
        let taken = self.auth.algorithms();
        let Some(algorithm) = { offered }.find(|algorithm| taken.contains(algorithm)) else {
            return Err(LoginRefused::authentication(no_algorithm(list, taken)));
        };
        let challenge = Challenge::new(algorithm, random);
        text::push(out, "CHAP_A", &(algorithm as u8).to_string());
        text::push(out, "CHAP_I", &challenge.id.to_string());
        text::push(out, "CHAP_C", &binary::hex(&challenge.bytes));
        self.progress = SecurityProgress::Response(challenge);
        Ok(())
    }

    /// The initiator's proof and, if it asks for one, ours.
    fn check(
        &mut self,
        challenge: &Challenge,
        keys: &Keys<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), LoginRefused> {
        let wants_proof = keys.get("CHAP_I").is_some() || keys.get("CHAP_C").is_some();
        let (name, response) = if wants_proof {
            let [name, response, ..] = keys.only(["CHAP_N", "CHAP_R", "CHAP_I", "CHAP_C"])?;
            (name, response)
        } else {
            let [name, response] = keys.only(["CHAP_N", "CHAP_R"])?;
            (name, response)
        };
        let credentials = self.auth.chap.as_ref();
        let credentials = credentials.expect("a challenge is made for CHAP alone");
        let response = binary::parse(response, chap::CHALLENGE_LEN_MAX)
            .ok_or_else(|| LoginRefused::authentication("its CHAP response is no binary value"))?;
        // Computed whatever the name is: how long it takes tells nothing.
        let is_right = challenge.is_answered_by(&response, &credentials.secret);
        if name != credentials.user {
            return Err(LoginRefused::authentication(
                "unknown user: its CHAP name is not the one that the target's `chap` has",
            ));
        }
        if !is_right {
            let why = match credentials.secret.is_withdrawn() {
                true => {
                    "the secret of the target's `chap` was taken back: its key was revoked or has \
                     expired; put another in its place"
                }
                false => "wrong secret: it is not the one that the target's `chap` has",
            };
            return Err(LoginRefused::authentication(why));
        }
        if wants_proof {
            self.prove(challenge, keys, out)?;
        }
        self.progress = SecurityProgress::Done;
        Ok(())
    }

    /// Our proof to the initiator's challenge (section 9.2.1).
    fn prove(
        &self,
        ours: &Challenge,
        keys: &Keys<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), LoginRefused> {
        let [id, theirs] = [keys.value("CHAP_I")?, keys.value("CHAP_C")?];
        let id = text::number(id).and_then(|id| u8::try_from(id).ok());
        let id = id.ok_or_else(|| LoginRefused::error("CHAP_I is no number from 0 to 255"))?;
        let theirs = binary::parse(theirs, chap::CHALLENGE_LEN_MAX)
            .ok_or_else(|| LoginRefused::error("CHAP_C is no binary value"))?;
        let Some(mutual) = &self.auth.mutual else {
            return Err(LoginRefused::authentication(
                "it wants the target's proof, and the target has no `mutual_chap`",
            ));
        };
        let shared = self.auth.chap.as_ref().map(|chap| &chap.secret);
        // One direction's secret must not be enough for the other's proof.
        if ours.is_reflected_by(&theirs) || shared == Some(&mutual.secret) {
            return Err(LoginRefused::authentication(
                "it would learn a secret: it sends the target's own challenge back, or both \
                 sides have one secret",
            ));
        }
        let proof = ours.algorithm.respond(id, &mutual.secret, &theirs);
        text::push(out, "CHAP_N", &mutual.user);
        text::push(out, "CHAP_R", &binary::hex(proof.bytes()));
        Ok(())
    }
}

/// Why no algorithm of the initiator's list will do.
fn no_algorithm(list: &str, taken: &[Algorithm]) -> String {
    let taken: Vec<_> = taken.iter().map(|one| (*one as u8).to_string()).collect();
    // A hostile one may be as long as a login.
    let list: String = list.chars().take(ALGORITHMS_SHOWN_MAX).collect();
    format!(
        "no common CHAP algorithm: it offers {list}, `chap_algorithms` allows {} (5 is md5, 6 \
         sha1, 7 sha256, 8 sha3-256)",
        taken.join(",")
    )
}

/// The security keys of one request.
struct Keys<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Keys<'a> {
    /// Each of them once, and none longer than it may be.
    fn of(pairs: &[(&'a str, &'a str)]) -> Result<Self, LoginRefused> {
        let is_twice = |at: &usize| pairs[..*at].iter().any(|pair| pair.0 == pairs[*at].0);
        let is_long = |(key, value): &(&str, &str)| match *key {
            // `0x` and two digits a byte.
            "CHAP_C" | "CHAP_R" => value.len() > 2 + 2 * chap::CHALLENGE_LEN_MAX,
            AUTH_METHOD | "CHAP_A" => false,
            _ => value.len() > VALUE_LEN_MAX,
        };
        if let Some(at) = (0..pairs.len()).find(is_twice) {
            return Err(LoginRefused::error(format!("{} comes twice", pairs[at].0)));
        }
        if let Some((key, value)) = pairs.iter().find(|pair| is_long(pair)) {
            let len = value.len();
            return Err(LoginRefused::error(format!(
                "{key} has {len} characters: too many"
            )));
        }
        Ok(Keys(pairs.to_vec()))
    }

    fn get(&self, key: &str) -> Option<&'a str> {
        self.0.iter().find(|pair| pair.0 == key).map(|pair| pair.1)
    }

    fn value(&self, key: &str) -> Result<&'a str, LoginRefused> {
        let missing = || LoginRefused::error(format!("{key} does not come where it is due"));
        self.get(key).ok_or_else(missing)
    }

    /// The values of these keys, which came, and no others did.
    fn only<const N: usize>(&self, names: [&str; N]) -> Result<[&'a str; N], LoginRefused> {
        let other = self.0.iter().find(|pair| !names.contains(&pair.0));
        if let Some((key, _)) = other {
            let names = names.join(", ");
            return Err(LoginRefused::error(format!(
                "{key} comes where {names} is due"
            )));
        }
        let mut values = [""; N];
        for (value, name) in values.iter_mut().zip(names) {
            *value = self.value(name)?;
        }
        Ok(values)
    }
}

//! Loads from other machines: `weft bench agent` runs `weft perf` there, on the word of a `weft bench
//! run --agents` here. Both have a secret in a file. What goes over their connection is a line of JSON
//! each: the agent says what it is and a nonce ([`Hello`]); the bench what is to be run, signed
//! ([`Order`]); the agent that the load is connected; the bench `begin`; the agent what the load told
//! ([`AgentAnswer`]). A connection that ends before ends the load.

mod load;
mod serve;

use std::path::Path;

use hmac::{Hmac, KeyInit as _, Mac as _};
use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use auth::Secret;

pub use load::{Agent, RemoteLoad};
pub use serve::{AgentArgs, run};

/// Where an agent listens, unless another port is named.
pub const PORT: u16 = 4481;
/// Fewer bytes than these are guessed.
const SECRET_BYTES_MIN: usize = 16;
const SECRET_BYTES_MAX: usize = 1024;
/// A line of either side, with the report of a load.
const LINE_BYTES_MAX: u64 = 8 << 20;

/// What an agent says first.
#[derive(Debug, Serialize, Deserialize)]
struct Hello {
    /// Its version of weft.
    weft: String,
    /// Processor and kernel, for the report.
    machine: String,
    /// CPUs that its loads have.
    cpus: usize,
    /// What an order is signed with, new for each connection.
    nonce: String,
}

/// What a bench says then.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    /// The words of `weft perf`; none where only the secret is tried.
    words: Vec<String>,
    /// HMAC-SHA-256 of the nonce and the words, in hexadecimal.
    mac: String,
}

/// What an agent answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AgentAnswer {
    /// The load is connected and waits for the line `begin`; or the secret is the same.
    Ready,
    /// The load has ended well: what it printed.
    Told(String),
    /// It has not: why.
    Failed(String),
}

/// What both sides sign with.
#[derive(Clone, Debug)]
pub struct AgentSecret(Secret);

impl AgentSecret {
    /// The secret in a file that its owner alone can read.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn read(path: &Path) -> Result<AgentSecret, String> {
        let read = client::read_private(path, SECRET_BYTES_MAX)?;
        let bytes = read.bytes().trim_ascii();
        if bytes.len() < SECRET_BYTES_MIN {
            let shown = path.display();
            return Err(format!(
                "{shown} holds {} bytes, and a secret of agents has at least {SECRET_BYTES_MIN}: \
                 `(umask 077; openssl rand -hex 32 >{shown})` makes one, which is copied to each machine",
                bytes.len()
            ));
        }
        Ok(AgentSecret(Secret::new(bytes)))
    }

    fn mac(&self, nonce: &str, words: &[String]) -> Hmac<Sha256> {
        let mac = Hmac::<Sha256>::new_from_slice(self.0.bytes());
        let mut mac = mac.expect("HMAC takes keys of any length");
        mac.update(nonce.as_bytes());
        // Each with its length: no two orders have the same bytes.
        for word in words {
            mac.update(&(word.len() as u64).to_be_bytes());
            mac.update(word.as_bytes());
        }
        mac
    }

    fn sign(&self, nonce: &str, words: Vec<String>) -> Order {
        let mac = hex(&self.mac(nonce, &words).finalize().into_bytes());
        Order { words, mac }
    }

    fn has_signed(&self, nonce: &str, order: &Order) -> bool {
        let Some(mac) = unhex(&order.mac) else {
            return false;
        };
        self.mac(nonce, &order.words).verify_slice(&mac).is_ok()
    }
}

/// A line of the connection.
fn line<T: Serialize>(message: &T) -> String {
    let mut line = serde_json::to_string(message).expect("strings and numbers");
    line.push('\n');
    line
}

fn nonce() -> Result<String, String> {
    let mut bytes = [0u8; 32];
    let filled = getrandom(&mut bytes, GetRandomFlags::empty());
    match filled {
        Ok(32) => Ok(hex(&bytes)),
        Ok(_) => Err("the kernel gave fewer random bytes than asked for".into()),
        Err(error) => Err(format!("no random bytes: {error}")),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_taken_with_its_words_its_nonce_and_its_secret_alone() {
        let secret = AgentSecret(Secret::new(*b"0123456789abcdef"));
        let other = AgentSecret(Secret::new(*b"0123456789abcdeF"));
        let words = |all: &[&str]| {
            all.iter()
                .map(|word| (*word).to_owned())
                .collect::<Vec<_>>()
        };
        let order = secret.sign("01", words(&["perf", "--json"]));
        assert!(secret.has_signed("01", &order));
        assert!(!secret.has_signed("02", &order));
        assert!(!other.has_signed("01", &order));
        for changed in [
            &["perf"][..],
            &["perf", "--jso", "n"],
            &["perf--json"],
            &["perf", "--json", ""],
        ] {
            let mac = order.mac.clone();
            let order = Order {
                words: words(changed),
                mac,
            };
            assert!(!secret.has_signed("01", &order), "{changed:?}");
        }
        for mac in ["", "zz", "0", "\u{e9}"] {
            let order = Order {
                words: order.words.clone(),
                mac: mac.into(),
            };
            assert!(!secret.has_signed("01", &order), "{mac}");
        }
    }
}

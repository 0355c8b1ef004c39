//! A handshake, whichever library makes it.

use crate::certificate_handshake::CertificateHandshake;
use crate::choice_handshake::ChoiceHandshake;
use crate::handshake::{HandshakeError, HandshakeStep};
use crate::psk_handshake::PskHandshake;

/// One handshake.
pub enum Handshake {
    /// None: a client that begins one is told so.
    NotSpoken,
    /// By a pre-shared key.
    Psk(Box<PskHandshake>),
    /// By certificates.
    Certificate(Box<CertificateHandshake>),
    /// By either, as the client offers.
    Choice(Box<ChoiceHandshake>),
}

impl Handshake {
    /// Goes on with what was received. A client's first step has no input.
    pub fn step(&mut self, input: &[u8]) -> HandshakeStep {
        match self {
            Handshake::NotSpoken => HandshakeStep {
                output: HandshakeError::NotSpoken.alert().in_the_clear().into(),
                end: Some(Err(HandshakeError::NotSpoken)),
            },
            Handshake::Psk(handshake) => handshake.step(input),
            Handshake::Certificate(handshake) => handshake.step(input),
            Handshake::Choice(handshake) => handshake.step(input),
        }
    }
}

impl From<PskHandshake> for Handshake {
    fn from(handshake: PskHandshake) -> Handshake {
        Handshake::Psk(Box::new(handshake))
    }
}

impl From<CertificateHandshake> for Handshake {
    fn from(handshake: CertificateHandshake) -> Handshake {
        Handshake::Certificate(Box::new(handshake))
    }
}

impl From<ChoiceHandshake> for Handshake {
    fn from(handshake: ChoiceHandshake) -> Handshake {
        Handshake::Choice(Box::new(handshake))
    }
}

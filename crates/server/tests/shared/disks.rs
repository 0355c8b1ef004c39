//! What targets that serve volumes are made of.

use server::{NamespaceSpec, SubsystemSpec};

pub const NQN: &str = "nqn.2026-01.io.weft:test";
pub const BLOCK: usize = 4096;

/// A RAM volume of `blocks` blocks.
pub fn ram(name: &str, blocks: u64) -> store::Spec {
    store::Spec::new(name, store::Kind::RAM, blocks * BLOCK as u64, BLOCK as u32)
}

/// A subsystem whose namespace 1 is the volume "ram".
pub fn subsystem() -> SubsystemSpec {
    SubsystemSpec {
        nqn: NQN.into(),
        serial: "1".into(),
        model: "weft".into(),
        namespaces: vec![NamespaceSpec {
            nsid: 1,
            volume: "ram".into(),
            ..NamespaceSpec::default()
        }],
        ..SubsystemSpec::default()
    }
}

//! A unit to test with.

use crate::unit::{
    AccessState, Modes, PRODUCT, Port, PortGroup, TargetView, Unit, UnitIdentity, VENDOR,
};

/// A thin unit of 2048 blocks of 512 bytes that can do everything, LUN 0, behind
/// two target port groups.
pub fn unit() -> Unit {
    Unit {
        lun: 0,
        block_bytes: 512,
        block_count: 2048,
        physical_exponent: 3,
        identity: UnitIdentity {
            uuid: *b"\x8a\x2f\x1a\xb9\xfb\x97\x5a\x34\x8d\xf3\x18\xc0\x0a\xbc\x40\x10",
            nguid: *b"\x30\x65\x39\x2e\xcc\x3a\x5c\xfe\x8a\xd6\x61\xfe\x2e\xee\xc6\x1e",
            eui64: None,
            naa: b"\x30\x65\x39\x2e\xcc\x3a\x5c\xfe".to_vec(),
            serial: "8a2f1ab9fb975a348df3".to_owned(),
            vendor: VENDOR.to_owned(),
            product: PRODUCT.to_owned(),
            revision: "0.1".to_owned(),
        },
        read_only: false,
        is_encrypted: true,
        thin: true,
        volatile_cache: true,
        atomic_bytes: 256 << 10,
        atomic_power_fail_bytes: 128 << 10,
        io_bytes_max: 512 << 10,
        can_persist: true,
        modes: Modes::default(),
        default_modes: Modes::default(),
        here: Port { group: 1, id: 1 },
        state: AccessState::ActiveOptimized,
        groups: [
            PortGroup {
                tag: 1,
                state: AccessState::ActiveOptimized,
                ports: vec![1, 2],
            },
            PortGroup {
                tag: 7,
                state: AccessState::Standby,
                ports: vec![3],
            },
        ]
        .into(),
    }
}

/// The target that it is in, which has LUN 300 besides.
pub fn target() -> TargetView {
    TargetView {
        name: "iqn.2026-01.io.weft:test".to_owned(),
        luns: vec![0, 300],
    }
}

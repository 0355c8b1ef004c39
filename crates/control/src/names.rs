//! What hosts know a volume by, where the file says so: of a volume that comes
//! from another target.

use std::collections::HashMap;

use server::check;
use store::{Names, Spec};

use crate::source::{Section, Sink};

/// Where each identity stands that no two volumes may have.
#[derive(Default)]
pub(crate) struct TakenNames(HashMap<(&'static str, String), usize>);

impl TakenNames {
    /// Tells of a volume that says what another says already.
    pub fn add(&mut self, sink: &mut Sink, section: &Section, volume: &Spec) {
        let line = sink.line(&section.span);
        let names = &volume.names;
        let said = [
            ("uuid", volume.uuid.map(|uuid| uuid.to_string())),
            ("nguid", names.nguid.map(|nguid| format!("{nguid:?}"))),
            ("eui64", names.eui64.map(|eui64| format!("{eui64:?}"))),
            ("naa", names.naa.as_ref().map(|naa| format!("{naa:?}"))),
            ("serial", names.serial.clone()),
        ];
        for (key, value) in said {
            let Some(value) = value else { continue };
            if let Some(first) = self.0.insert((key, value), line) {
                let text = format!(
                    " has this `{key}` already, and hosts would take both for one disk: leave \
                     `{key}` out, and each has its own"
                );
                sink.add_with_line(&section.span_of(key), ("the volume ", first, &text));
            }
        }
    }
}

pub(crate) fn names(sink: &mut Sink, section: &Section) -> Names {
    let mut text = |key, bytes_max| {
        let text = section.text(sink, key)?;
        if let Err(why) = check::fixed_text(key, text.value, bytes_max) {
            sink.add(&text.span, why);
        }
        Some(text.value.to_owned())
    };
    let serial = text("serial", check::UNIT_SERIAL_BYTES_MAX);
    let vendor = text("vendor", check::VENDOR_BYTES);
    let product = text("product", check::PRODUCT_BYTES);
    let revision = text("revision", check::REVISION_BYTES);
    Names {
        nguid: hex(sink, section, "nguid", "32 hexadecimal digits").and_then(|b| b.try_into().ok()),
        eui64: hex(sink, section, "eui64", "16 hexadecimal digits").and_then(|b| b.try_into().ok()),
        naa: hex(sink, section, "naa", check::NAA),
        serial,
        vendor,
        product,
        revision,
    }
}

/// Hexadecimal digits, which may be in groups.
fn hex(sink: &mut Sink, section: &Section, key: &str, form: &str) -> Option<Vec<u8>> {
    let text = section.text(sink, key)?;
    let digits: Vec<u8> = text.value.bytes().filter(|byte| *byte != b'-').collect();
    let byte = |pair: &[u8]| {
        let digit = |at: usize| char::from(pair[at]).to_digit(16);
        Some((digit(0)? << 4 | digit(1)?) as u8)
    };
    let bytes: Option<Vec<u8>> = match digits.len() % 2 {
        0 => digits.chunks(2).map(byte).collect(),
        _ => None,
    };
    let bytes = bytes.filter(|bytes| match key {
        "nguid" => bytes.len() == 16 && bytes.iter().any(|byte| *byte != 0),
        "eui64" => bytes.len() == 8 && bytes.iter().any(|byte| *byte != 0),
        _ => check::is_naa(bytes),
    });
    if bytes.is_none() {
        let why = format!(
            "`{key}` is {form}, not all of them 0, not \"{}\"",
            text.value
        );
        sink.add(&text.span, why);
    }
    bytes
}

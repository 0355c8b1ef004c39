//! Formats of disk images: files that hold a disk inside a format of their own.
//!
//! A volume over such a file would show hosts its headers as blocks, and let them
//! write over the headers.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes at the beginning, and at the end, that tell.
const LOOKED_AT: usize = 512;

/// Where a format has its signature, and how it is called.
const SIGNATURES: [(usize, &[u8], &str); 10] = [
    (0, b"QFI\xfb", "qcow2"),
    (0, b"QED\0", "QED"),
    (0, b"KDMV", "VMDK"),
    (0, b"COWD", "VMDK"),
    (0, b"# Disk DescriptorFile", "VMDK"),
    (0, b"vhdxfile", "VHDX"),
    (0, VHD, "VHD"),
    // Behind a text of 64 bytes that differs from version to version.
    (64, &0xbeda_107f_u32.to_le_bytes(), "VDI"),
    (0, b"WithoutFreeSpace", "Parallels"),
    (0, b"WithouFreSpacExt", "Parallels"),
];

/// A VHD of fixed size has it only behind the data, in the last sector.
const VHD: &[u8] = b"conectix";

/// The format of an image of `len` bytes, if it is one that is known.
pub(crate) fn of(file: &File, len: u64) -> io::Result<Option<&'static str>> {
    let first = read(file, 0)?;
    let has = |(at, signature, _): &&(usize, &[u8], &str)| first[*at..].starts_with(signature);
    if let Some((_, _, name)) = SIGNATURES.iter().find(has) {
        return Ok(Some(name));
    }
    let last = read(file, len.saturating_sub(LOOKED_AT as u64))?;
    Ok(last.starts_with(VHD).then_some("VHD"))
}

/// What lies at `offset`; zeros behind the end.
fn read(file: &File, offset: u64) -> io::Result<[u8; LOOKED_AT]> {
    let mut bytes = [0; LOOKED_AT];
    let mut done = 0;
    while done < LOOKED_AT {
        match file.read_at(&mut bytes[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn format(bytes: &[u8]) -> Option<&'static str> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        of(&file, bytes.len() as u64).unwrap()
    }

    #[test]
    fn image_with_a_signature_has_that_format() {
        for (at, signature, name) in SIGNATURES {
            let mut bytes = vec![0; at];
            bytes.extend_from_slice(signature);
            assert_eq!(format(&bytes), Some(name), "nothing behind it");
            bytes.resize(4096, 1);
            assert_eq!(format(&bytes), Some(name));
            bytes[at] ^= 1;
            assert_eq!(format(&bytes), None, "{name} with another first byte");
        }
        let mut fixed = vec![0; 4096];
        fixed.extend_from_slice(VHD);
        fixed.resize(4096 + 512, 0);
        assert_eq!(format(&fixed), Some("VHD"));
    }

    /// Spelt out: qemu-img writes the second for every new image.
    #[test]
    fn parallels_image_is_known_by_either_signature() {
        for signature in [b"WithoutFreeSpace", b"WithouFreSpacExt"] {
            let mut bytes = signature.to_vec();
            bytes.extend_from_slice(&[2, 0, 0, 0]);
            bytes.resize(64, 0);
            assert_eq!(format(&bytes), Some("Parallels"));
        }
    }

    #[test]
    fn image_without_a_signature_in_its_place_has_no_format() {
        for len in [0, 1, 63, 511, 512, 4096] {
            assert_eq!(format(&vec![0; len]), None, "{len}");
        }
        // A boot record, and a signature where none belongs.
        let mut disk = vec![0; 4096];
        disk[510..512].copy_from_slice(&[0x55, 0xaa]);
        disk[512..516].copy_from_slice(b"QFI\xfb");
        assert_eq!(format(&disk), None);
    }
}

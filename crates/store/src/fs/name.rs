//! Names and texts that a file system takes.

use super::Error;

/// Bytes of a name at most.
pub const NAME_BYTES_MAX: usize = 255;
/// Bytes of a symbolic link's text at most.
pub const SYMLINK_BYTES_MAX: usize = 4095;

/// Whether a directory may have an entry of this name.
#[inline]
pub fn check_name(name: &[u8]) -> Result<(), Error> {
    match name {
        b"" => Err(Error::Inval),
        b"." | b".." => Err(Error::BadName),
        _ if name.len() > NAME_BYTES_MAX => Err(Error::NameTooLong),
        _ if name.iter().any(|&byte| byte == b'/' || byte == 0) => Err(Error::BadChar),
        _ => Ok(()),
    }
}

/// Whether a symbolic link may have this text.
pub fn check_symlink(text: &[u8]) -> Result<(), Error> {
    match text {
        b"" => Err(Error::Inval),
        _ if text.len() > SYMLINK_BYTES_MAX => Err(Error::NameTooLong),
        _ if text.contains(&0) => Err(Error::Inval),
        _ => Ok(()),
    }
}

/// Whether an extended attribute may have this name.
pub fn check_xattr_name(name: &[u8]) -> Result<(), Error> {
    match name {
        b"" => Err(Error::Inval),
        _ if name.len() > NAME_BYTES_MAX => Err(Error::NameTooLong),
        _ if name.contains(&0) => Err(Error::BadChar),
        _ => Ok(()),
    }
}

#[test]
fn names_are_checked() {
    let long = [b'x'; NAME_BYTES_MAX + 1];
    assert_eq!(check_name(&long[1..]), Ok(()));
    for (name, error) in [
        (&long[..], Error::NameTooLong),
        (b"", Error::Inval),
        (b".", Error::BadName),
        (b"..", Error::BadName),
        (b"a/b", Error::BadChar),
        (b"a\0", Error::BadChar),
    ] {
        assert_eq!(check_name(name), Err(error), "{name:?}");
    }
    assert_eq!(check_name(b"..."), Ok(()));
    assert_eq!(check_name(b"\xff\xfe"), Ok(()));
    assert_eq!(check_symlink(&[b'/'; SYMLINK_BYTES_MAX]), Ok(()));
    let long = [b'/'; SYMLINK_BYTES_MAX + 1];
    assert_eq!(check_symlink(&long), Err(Error::NameTooLong));
    assert_eq!(check_symlink(b""), Err(Error::Inval));
    assert_eq!(check_xattr_name(b"a/b."), Ok(()));
    assert_eq!(check_xattr_name(b"a\0"), Err(Error::BadChar));
}

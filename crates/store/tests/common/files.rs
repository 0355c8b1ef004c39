//! Where file operations are carried out.

use std::io;

use reactor::{FileIo, Token};

/// Something that carries out file operations and can be waited for.
pub trait Files {
    fn io(&mut self) -> &mut dyn FileIo;
    /// The next completion; never called when nothing is under way.
    fn completion(&mut self) -> (Token, io::Result<u32>);
}

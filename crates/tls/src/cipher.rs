//! AES-GCM over bytes that lie in pieces: what goes in and out of one record is named by
//! addresses, so that it is copied by being enciphered and in no other way.

use std::os::raw::c_int;
use std::ptr::{NonNull, null, null_mut};

use aws_lc_sys as lc;

/// Bytes of the tag behind the ciphertext.
pub(crate) const TAG_BYTES: usize = 16;
/// Bytes of a nonce.
pub(crate) const NONCE_BYTES: usize = 12;

/// Bytes somewhere, which the caller of [`AesGcm::update`] may read.
#[derive(Clone, Copy)]
pub(crate) struct CipherSource {
    pub at: *const u8,
    pub len: usize,
}

/// Which way a key works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// From plaintext to ciphertext.
    Seal,
    /// And back.
    Open,
}

/// A key of one direction.
pub(crate) struct AesGcm {
    context: NonNull<lc::EVP_CIPHER_CTX>,
    way: Way,
}

// SAFETY: the context is plain memory of its own, used by one thread at a time.
unsafe impl Send for AesGcm {}

impl AesGcm {
    /// Of 16 or 32 bytes. Panics at others.
    pub fn new(key: &[u8], way: Way) -> AesGcm {
        // SAFETY: the cipher is static; a new context is taken by nobody else. The key is as
        // long as the cipher reads.
        unsafe {
            let cipher = match key.len() {
                16 => lc::EVP_aes_128_gcm(),
                32 => lc::EVP_aes_256_gcm(),
                len => panic!("a key of {len} bytes"),
            };
            let context = NonNull::new(lc::EVP_CIPHER_CTX_new()).expect("memory for a key");
            let gcm = AesGcm { context, way };
            let nonce = [0; NONCE_BYTES];
            let context = context.as_ptr();
            let ok = match way {
                Way::Seal => lc::EVP_EncryptInit_ex(
                    context,
                    cipher,
                    null_mut(),
                    key.as_ptr(),
                    nonce.as_ptr(),
                ),
                Way::Open => lc::EVP_DecryptInit_ex(
                    context,
                    cipher,
                    null_mut(),
                    key.as_ptr(),
                    nonce.as_ptr(),
                ),
            };
            assert!(ok == 1, "a key that the cipher takes");
            gcm
        }
    }

    /// Begins a record: its nonce, and what is authenticated besides.
    pub fn begin(&mut self, nonce: &[u8; NONCE_BYTES], header: &[u8]) {
        let context = self.context.as_ptr();
        // SAFETY: without a cipher and a key those that it has stay; the nonce is as long as
        // they want it.
        let ok = unsafe {
            let (cipher, engine, key) = (null(), null_mut(), null());
            match self.way {
                Way::Seal => lc::EVP_EncryptInit_ex(context, cipher, engine, key, nonce.as_ptr()),
                Way::Open => lc::EVP_DecryptInit_ex(context, cipher, engine, key, nonce.as_ptr()),
            }
        };
        assert!(ok == 1, "a nonce");
        let header = CipherSource {
            at: header.as_ptr(),
            len: header.len(),
        };
        // SAFETY: the header is borrowed; nothing is written without a target.
        unsafe { self.update(header, null_mut()) };
    }

    /// The next bytes of the record, from `from` to `to`; what lies at `to` may be where
    /// `from` is, but not overlap it otherwise.
    ///
    /// # Safety
    /// `from` can be read, and `to` written, for its length.
    pub unsafe fn update(&mut self, from: CipherSource, to: *mut u8) {
        let mut len = 0;
        let context = self.context.as_ptr();
        // SAFETY: the caller's promise; GCM writes as many bytes as it reads.
        let ok = unsafe {
            match self.way {
                Way::Seal => {
                    lc::EVP_EncryptUpdate(context, to, &raw mut len, from.at, from.len as c_int)
                }
                Way::Open => {
                    lc::EVP_DecryptUpdate(context, to, &raw mut len, from.at, from.len as c_int)
                }
            }
        };
        assert!(ok == 1 && len as usize == from.len, "bytes of a record");
    }

    /// The end of a record that is sealed: its tag.
    pub fn tag(&mut self) -> [u8; TAG_BYTES] {
        let mut tag = [0; TAG_BYTES];
        let mut len = 0;
        let context = self.context.as_ptr();
        // SAFETY: the end writes nothing in GCM; the tag has room for what is asked for.
        let ok = unsafe {
            lc::EVP_EncryptFinal_ex(context, tag.as_mut_ptr(), &raw mut len) == 1
                && lc::EVP_CIPHER_CTX_ctrl(
                    context,
                    lc::EVP_CTRL_AEAD_GET_TAG as c_int,
                    TAG_BYTES as c_int,
                    tag.as_mut_ptr().cast(),
                ) == 1
        };
        assert!(ok, "the tag of a record");
        tag
    }

    /// The end of a record that is opened: whether it is as it was sealed.
    pub fn is_authentic(&mut self, tag: &[u8; TAG_BYTES]) -> bool {
        let mut tag = *tag;
        let mut rest = [0; TAG_BYTES];
        let mut len = 0;
        let context = self.context.as_ptr();
        // SAFETY: the tag is as long as is said; the end writes nothing in GCM.
        unsafe {
            lc::EVP_CIPHER_CTX_ctrl(
                context,
                lc::EVP_CTRL_AEAD_SET_TAG as c_int,
                TAG_BYTES as c_int,
                tag.as_mut_ptr().cast(),
            ) == 1
                && lc::EVP_DecryptFinal_ex(context, rest.as_mut_ptr(), &raw mut len) == 1
        }
    }
}

impl Drop for AesGcm {
    fn drop(&mut self) {
        // SAFETY: it is ours, and used no more; its memory is wiped.
        unsafe { lc::EVP_CIPHER_CTX_free(self.context.as_ptr()) };
    }
}

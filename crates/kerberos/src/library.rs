//! MIT's library, loaded when Kerberos is first asked for: a machine without it serves all else.
//!
//! It is loaded by `dlopen` of the C library, which every build has; it stays until the process
//! ends, so that a crate that also unloads libraries would bring nothing.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem;
use std::sync::OnceLock;

use crate::KerberosError;

/// The name that MIT's releases since 1.0 have for the interface.
pub(crate) const NAME: &str = "libgssapi_krb5.so.2";

/// A buffer (RFC 2744, section 3.2).
#[repr(C)]
pub(crate) struct Buffer {
    pub length: usize,
    pub value: *mut c_void,
}

/// An object identifier (RFC 2744, section 3.3).
#[repr(C)]
pub(crate) struct Oid {
    pub length: u32,
    pub elements: *const c_void,
}

/// A set of them (RFC 2744, section 3.4).
#[repr(C)]
pub(crate) struct OidSet {
    pub count: usize,
    pub elements: *const Oid,
}

/// Where credentials lie, of MIT's extensions: a keytab, a cache of tickets.
#[repr(C)]
pub(crate) struct KeyValue {
    pub key: *const c_char,
    pub value: *const c_char,
}

/// A set of them.
#[repr(C)]
pub(crate) struct KeyValueSet {
    pub count: u32,
    pub elements: *const KeyValue,
}

/// A part of a message, of MIT's extensions: what it is, and where.
#[repr(C)]
pub(crate) struct Part {
    pub kind: u32,
    pub buffer: Buffer,
}

/// What only the library looks into.
pub(crate) type Opaque = *mut c_void;

macro_rules! functions {
    ($($(#[$about:meta])* $name:ident($($argument:ty),* $(,)?);)*) => {
        /// Functions of the library. All give a major status; the first argument takes the minor.
        ///
        /// # Safety
        /// What an argument points to is of the type that it says and outlives the call; it may be
        /// null where RFC 2744 lets it be.
        pub(crate) struct Functions {
            $($(#[$about])* pub $name: unsafe extern "C" fn(*mut u32, $($argument),*) -> u32,)*
        }

        impl Functions {
            fn of(library: Opaque) -> Result<Functions, String> {
                Ok(Functions {
                    $($name: {
                        let name = concat!(stringify!($name), "\0");
                        let at = symbol(library, name)?;
                        // SAFETY: the library has a function of this name alone under it, whose
                        // arguments RFC 2744 or MIT's `gssapi_ext.h` give as they stand here.
                        unsafe {
                            mem::transmute::<
                                Opaque,
                                unsafe extern "C" fn(*mut u32, $($argument),*) -> u32,
                            >(at)
                        }
                    },)*
                })
            }
        }
    };
}

functions! {
    /// RFC 2744, section 5.1.
    gss_accept_sec_context(
        *mut Opaque, Opaque, *const Buffer, Opaque, *mut Opaque, *mut *const Oid, *mut Buffer,
        *mut u32, *mut u32, *mut Opaque,
    );
    /// An extension of MIT's: as `gss_acquire_cred`, from places that the caller names.
    gss_acquire_cred_from(
        Opaque, u32, *const OidSet, c_int, *const KeyValueSet, *mut Opaque, *mut *mut OidSet,
        *mut u32,
    );
    /// RFC 2744, section 5.9.
    gss_delete_sec_context(*mut Opaque, *mut Buffer);
    /// RFC 2744, section 5.10.
    gss_display_name(Opaque, *mut Buffer, *mut *const Oid);
    /// RFC 2744, section 5.11.
    gss_display_status(u32, c_int, *const Oid, *mut u32, *mut Buffer);
    /// An extension of MIT's: as `gss_get_mic` (RFC 2744, section 5.15), without a copy.
    gss_get_mic_iov(Opaque, u32, *mut Part, c_int);
    /// Bytes of that.
    gss_get_mic_iov_length(Opaque, u32, *mut Part, c_int);
    /// RFC 2744, section 5.16.
    gss_import_name(*const Buffer, *const Oid, *mut Opaque);
    /// RFC 2744, section 5.19.
    gss_init_sec_context(
        Opaque, *mut Opaque, Opaque, *const Oid, u32, u32, Opaque, *const Buffer,
        *mut *const Oid, *mut Buffer, *mut u32, *mut u32,
    );
    /// RFC 2744, section 5.21.
    gss_inquire_context(
        Opaque, *mut Opaque, *mut Opaque, *mut u32, *mut *const Oid, *mut u32, *mut c_int,
        *mut c_int,
    );
    /// RFC 2744, section 5.26.
    gss_release_buffer(*mut Buffer);
    /// RFC 2744, section 5.27.
    gss_release_cred(*mut Opaque);
    /// RFC 2744, section 5.28.
    gss_release_name(*mut Opaque);
    /// An extension of MIT's: as `gss_unwrap` (RFC 2744, section 5.31), in place.
    gss_unwrap_iov(Opaque, *mut c_int, *mut u32, *mut Part, c_int);
    /// An extension of MIT's: as `gss_verify_mic` (RFC 2744, section 5.32), without a copy.
    gss_verify_mic_iov(Opaque, *mut u32, *mut Part, c_int);
    /// An extension of MIT's: as `gss_wrap` (RFC 2744, section 5.33), in place.
    gss_wrap_iov(Opaque, c_int, u32, *mut c_int, *mut Part, c_int);
    /// Bytes of that.
    gss_wrap_iov_length(Opaque, c_int, u32, *mut c_int, *mut Part, c_int);
}

fn symbol(library: Opaque, name: &str) -> Result<Opaque, String> {
    let name = CStr::from_bytes_with_nul(name.as_bytes()).map_err(|e| e.to_string())?;
    // SAFETY: the library is open, and the name ends with a zero.
    let at = unsafe { libc::dlsym(library, name.as_ptr()) };
    match at.is_null() {
        true => Err(format!("it has no function {}", name.to_string_lossy())),
        false => Ok(at),
    }
}

fn load() -> Result<Functions, KerberosError> {
    if cfg!(target_feature = "crt-static") {
        return Err(KerberosError::StaticBuild);
    }
    let missing = |why| KerberosError::NoLibrary { why };
    let name = std::ffi::CString::new(NAME).map_err(|e| missing(e.to_string()))?;
    // SAFETY: the name ends with a zero; what the library does when it is loaded is no more
    // than to set up its own tables.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        // SAFETY: a text that ends with a zero, or none; it is this thread's until it calls
        // `dlopen` again.
        let why = unsafe { libc::dlerror().as_ref().map(|why| CStr::from_ptr(why)) };
        let why = why.map(|why| why.to_string_lossy().into_owned());
        return Err(missing(why.unwrap_or_default()));
    }
    Functions::of(library).map_err(missing)
}

/// Has an `exit` of the process come to its end before the destructors of libraries: those of this
/// one destroy locks, which other threads take for as long as the process is there. A thread that
/// the KDC or the user database keeps waiting could not be waited for.
#[cfg(target_env = "gnu")]
fn leave_destructors_out() {
    // SAFETY: the C library has it, with these arguments.
    unsafe extern "C" {
        /// on_exit(3): what is registered last is called first, and that of libraries was
        /// registered before `main`.
        fn on_exit(function: extern "C" fn(c_int, Opaque), argument: Opaque) -> c_int;
    }

    extern "C" fn end(code: c_int, _: Opaque) {
        // SAFETY: it only ends the process.
        unsafe { libc::_exit(code) }
    }

    // SAFETY: the function is there for as long as the program, and uses no argument.
    let failed = unsafe { on_exit(end, std::ptr::null_mut()) };
    assert_eq!(failed, 0, "there is memory for one more function");
}

/// This C library leaves locks that are destroyed as they are.
#[cfg(not(target_env = "gnu"))]
fn leave_destructors_out() {}

/// The library. One that could not be loaded is looked for again the next time: it may have been
/// installed meanwhile.
pub(crate) fn library() -> Result<&'static Functions, KerberosError> {
    static LOADED: OnceLock<Functions> = OnceLock::new();
    match LOADED.get() {
        Some(functions) => Ok(functions),
        None => {
            let functions = load()?;
            Ok(LOADED.get_or_init(|| {
                leave_destructors_out();
                functions
            }))
        }
    }
}

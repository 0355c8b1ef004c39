//! Access control lists (RFC 8881, section 6): what one grants, which mode it shows, and
//! what becomes of it where a mode is set or an object is made.
//!
//! An object without a list has what its mode says, and shows [`Acl::of_mode`].

mod posix;

pub use posix::PosixAcl;

use std::ops::{BitAnd, BitOr, Not};
use std::sync::Arc;

use super::{Error, ObjectKind};

/// Entries of a list that is set at most. A mode that is set makes [`STORED_ACES_MAX`] of
/// them: as many as an extended attribute of ext4 holds.
pub const ACES_MAX: usize = 128;
/// Entries of a list that is kept at most: each that is inherited may become two, and five
/// come from the mode.
pub const STORED_ACES_MAX: usize = 2 * ACES_MAX + 5;

/// What may be done to an object: bits of `acemask4` (RFC 8881, section 6.2.1.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights(pub u32);

impl Rights {
    /// None.
    pub const NONE: Rights = Rights(0);
    /// To read; of a directory: to list.
    pub const READ: Rights = Rights(0x1);
    /// To write anywhere; of a directory: to add what is no directory.
    pub const WRITE: Rights = Rights(0x2);
    /// To write behind the end; of a directory: to add a directory.
    pub const APPEND: Rights = Rights(0x4);
    /// To execute; of a directory: to look names up.
    pub const EXECUTE: Rights = Rights(0x20);
    /// Of a directory: to remove entries.
    pub const DELETE_CHILD: Rights = Rights(0x40);
    /// To see attributes other than the list.
    pub const READ_ATTRIBUTES: Rights = Rights(0x80);
    /// To set times.
    pub const WRITE_ATTRIBUTES: Rights = Rights(0x100);
    /// To be removed.
    pub const DELETE: Rights = Rights(0x1_0000);
    /// To see the list.
    pub const READ_ACL: Rights = Rights(0x2_0000);
    /// To set the list, and the mode.
    pub const WRITE_ACL: Rights = Rights(0x4_0000);
    /// To become the owner.
    pub const WRITE_OWNER: Rights = Rights(0x8_0000);
    /// All that there are; those of named attributes and SYNCHRONIZE are kept, and
    /// nothing needs them.
    pub const ALL: Rights = Rights(0x1f_01ff);
    /// What bits of a mode are about.
    const OF_MODE: Rights = Rights(0x27);
    /// What all have whatever the mode is.
    const OF_EVERYONE: Rights = Rights(0x12_0080);
    /// What the owner has beside that.
    const OF_OWNER: Rights = Rights(0x4_0100);

    /// Whether all of `wanted` are among them.
    #[inline]
    pub fn holds(self, wanted: Rights) -> bool {
        self & wanted == wanted
    }

    /// Whether one of `wanted` is among them.
    #[inline]
    pub fn has_any(self, wanted: Rights) -> bool {
        self & wanted != Rights::NONE
    }

    /// What three bits of a mode grant.
    #[inline]
    pub(super) fn of_bits(bits: u32, kind: ObjectKind) -> Rights {
        let when = |bit: u32, rights: Rights| {
            if bits & bit == 0 {
                Rights::NONE
            } else {
                rights
            }
        };
        let entries = match kind {
            ObjectKind::Directory => Rights::DELETE_CHILD,
            _ => Rights::NONE,
        };
        when(4, Rights::READ)
            | when(2, Rights::WRITE | Rights::APPEND | entries)
            | when(1, Rights::EXECUTE)
    }

    /// The three bits of a mode that say most of it (section 6.3.2).
    fn bits(self) -> u32 {
        let bit = |wanted, bit| if self.holds(wanted) { bit } else { 0 };
        bit(Rights::READ, 4) | bit(Rights::WRITE | Rights::APPEND, 2) | bit(Rights::EXECUTE, 1)
    }
}

impl BitOr for Rights {
    type Output = Rights;
    #[inline]
    fn bitor(self, other: Rights) -> Rights {
        Rights(self.0 | other.0)
    }
}

impl BitAnd for Rights {
    type Output = Rights;
    #[inline]
    fn bitand(self, other: Rights) -> Rights {
        Rights(self.0 & other.0)
    }
}

impl Not for Rights {
    type Output = Rights;
    #[inline]
    fn not(self) -> Rights {
        Rights(!self.0)
    }
}

/// Whether an entry grants or denies. Others (AUDIT, ALARM) are not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AceKind {
    /// ACE4_ACCESS_ALLOWED_ACE_TYPE.
    Allow,
    /// ACE4_ACCESS_DENIED_ACE_TYPE.
    Deny,
}

/// Whom an entry is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AceWho {
    /// OWNER@: the owner of the object.
    Owner,
    /// GROUP@: members of its group.
    Group,
    /// EVERYONE@.
    Everyone,
    /// A user.
    User(u32),
    /// Members of a group.
    Members(u32),
}

/// What becomes of an entry in what is made in its directory (RFC 8881, section 6.2.1.4.1):
/// bits of `aceflag4`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inheritance(pub u32);

impl Inheritance {
    /// ACE4_FILE_INHERIT_ACE: what is no directory gets it.
    pub const FILE: u32 = 1;
    /// ACE4_DIRECTORY_INHERIT_ACE: directories get it.
    pub const DIRECTORY: u32 = 2;
    /// ACE4_NO_PROPAGATE_INHERIT_ACE: and hand it on no further.
    pub const NO_PROPAGATE: u32 = 4;
    /// ACE4_INHERIT_ONLY_ACE: it says nothing of the directory itself.
    pub const ONLY: u32 = 8;

    fn has(self, flag: u32) -> bool {
        self.0 & flag != 0
    }

    fn is_inherited(self) -> bool {
        self.has(Inheritance::FILE | Inheritance::DIRECTORY)
    }
}

/// An entry of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ace {
    /// Whether it grants or denies.
    pub kind: AceKind,
    /// What becomes of it below.
    pub inheritance: Inheritance,
    /// What.
    pub rights: Rights,
    /// To whom.
    pub who: AceWho,
}

impl Ace {
    fn new(kind: AceKind, who: AceWho, rights: Rights) -> Ace {
        Ace {
            kind,
            inheritance: Inheritance::default(),
            rights,
            who,
        }
    }

    /// Whether it says something of the object that it is on.
    fn is_effective(&self) -> bool {
        !self.inheritance.has(Inheritance::ONLY)
    }

    fn is_named(&self) -> bool {
        matches!(self.who, AceWho::User(_) | AceWho::Members(_))
    }

    /// What an object that is made in a directory gets of it (section 6.4.3.1).
    fn inherited(&self, kind: ObjectKind) -> Option<Ace> {
        let flags = self.inheritance;
        let is_directory = kind == ObjectKind::Directory;
        let inheritance = match is_directory {
            false if flags.has(Inheritance::FILE) => 0,
            true if flags.has(Inheritance::NO_PROPAGATE) && flags.has(Inheritance::DIRECTORY) => 0,
            true if flags.has(Inheritance::NO_PROPAGATE) => return None,
            true if flags.has(Inheritance::DIRECTORY) => flags.0 & !Inheritance::ONLY,
            true if flags.has(Inheritance::FILE) => flags.0 | Inheritance::ONLY,
            _ => return None,
        };
        Some(Ace {
            inheritance: Inheritance(inheritance),
            ..*self
        })
    }
}

/// What entries grant, and what they deny. What is in neither is not mentioned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AclVerdict {
    /// Granted.
    pub allowed: Rights,
    /// Denied.
    pub denied: Rights,
}

/// A list: its entries count in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl(Arc<[Ace]>);

impl Acl {
    /// A list to be set.
    ///
    /// # Errors
    /// [`Error::FBig`] for more than [`ACES_MAX`] entries.
    pub fn new(aces: &[Ace]) -> Result<Acl, Error> {
        match aces.len() {
            0..=ACES_MAX => Ok(Acl(aces.into())),
            _ => Err(Error::FBig),
        }
    }

    /// A list that was kept; `None` where no list can have so many entries.
    pub(super) fn kept(aces: &[Ace]) -> Option<Acl> {
        (aces.len() <= STORED_ACES_MAX).then(|| Acl(aces.into()))
    }

    /// The entries.
    pub fn aces(&self) -> &[Ace] {
        &self.0
    }

    /// Bytes of the entries.
    pub(super) fn bytes(&self) -> u64 {
        size_of_val(&*self.0) as u64
    }

    /// What the entries for which `is_meant` holds say (section 6.2.1): of each right the first
    /// that mentions it counts.
    #[inline]
    pub fn verdict(&self, mut is_meant: impl FnMut(&Ace) -> bool) -> AclVerdict {
        let mut verdict = AclVerdict::default();
        let effective = self.0.iter().filter(|ace| ace.is_effective());
        for ace in effective.filter(|ace| is_meant(ace)) {
            let AclVerdict { allowed, denied } = verdict;
            let new = ace.rights & !(allowed | denied);
            match ace.kind {
                AceKind::Allow => verdict.allowed = allowed | new,
                AceKind::Deny => verdict.denied = denied | new,
            }
        }
        verdict
    }

    /// The nine bits of the mode that it shows (section 6.3.2).
    pub fn mode(&self) -> u32 {
        let bits = |class| {
            let is_meant = |ace: &Ace| ace.who == AceWho::Everyone || ace.who == class;
            self.verdict(is_meant).allowed.bits()
        };
        bits(AceWho::Owner) << 6 | bits(AceWho::Group) << 3 | bits(AceWho::Everyone)
    }

    /// What a new object that inherits it may have of a mode: for the owner, the group and all
    /// others what it grants them, and what `umask` leaves of those whom it does not name.
    pub(super) fn limit(&self, umask: u32) -> u32 {
        let classes = [
            (AceWho::Owner, 6),
            (AceWho::Group, 3),
            (AceWho::Everyone, 0),
        ];
        let is_named = |who| {
            self.0
                .iter()
                .any(|ace| ace.is_effective() && ace.who == who)
        };
        let named = classes.iter().filter(|(who, _)| is_named(*who));
        let named = named.fold(0, |bits, (_, at)| bits | 0o7 << at);
        !(named | umask) | self.mode() & named
    }

    /// What grants as much as a mode does (section 6.4.2).
    pub fn of_mode(mode: u32, kind: ObjectKind) -> Acl {
        let [owner, group, everyone] = [6, 3, 0].map(|at| Rights::of_bits(mode >> at, kind));
        let denials = [
            (AceWho::Owner, (group | everyone) & !owner),
            (AceWho::Group, everyone & !group),
        ];
        let denials = denials.map(|(who, rights)| Ace::new(AceKind::Deny, who, rights));
        let of_owner = Rights::OF_OWNER | Rights::OF_EVERYONE;
        let aces = [
            denials[0],
            Ace::new(AceKind::Allow, AceWho::Owner, owner | of_owner),
            denials[1],
            Ace::new(AceKind::Allow, AceWho::Group, group | Rights::OF_EVERYONE),
            Ace::new(
                AceKind::Allow,
                AceWho::Everyone,
                everyone | Rights::OF_EVERYONE,
            ),
        ];
        let aces = aces.iter().filter(|ace| ace.rights != Rights::NONE);
        Acl(aces.copied().collect())
    }

    /// What is left of it once a mode is set (section 6.4.1.1): the owner, the group and all
    /// others have what the mode says, those whom it names no more than the group. What is
    /// handed on stays. `None`: the mode alone.
    pub fn with_mode(&self, mode: u32, kind: ObjectKind) -> Option<Acl> {
        self.with_modes(mode, mode, kind)
    }

    /// Likewise, where those whom it names have no more than the group in the mode `asked`.
    pub(super) fn with_modes(&self, mode: u32, asked: u32, kind: ObjectKind) -> Option<Acl> {
        let [group, everyone] = [3, 0].map(|at| Rights::of_bits(asked >> at, kind));
        // Whom it names must not have what only all others have: they are not named then.
        let keeps_allowed = group.holds(everyone);
        let effective = self.0.iter().filter(|ace| ace.is_effective());
        let named = effective.filter_map(|ace| {
            let rights = match ace.kind {
                AceKind::Deny => ace.rights,
                AceKind::Allow if keeps_allowed => ace.rights & (group | !Rights::OF_MODE),
                AceKind::Allow => return None,
            };
            let is_kept = ace.is_named() && rights != Rights::NONE;
            is_kept.then(|| Ace::new(ace.kind, ace.who, rights))
        });
        let handed_on = self.0.iter().filter(|ace| ace.inheritance.is_inherited());
        let handed_on = handed_on.map(|ace| Ace {
            inheritance: Inheritance(ace.inheritance.0 | Inheritance::ONLY),
            ..*ace
        });
        let of_mode = Acl::of_mode(mode, kind);
        let is_of_owner = |ace: &&Ace| ace.who == AceWho::Owner;
        let owner = of_mode.0.iter().filter(is_of_owner).copied();
        let others = of_mode.0.iter().filter(|ace| !is_of_owner(ace)).copied();
        let aces: Vec<Ace> = owner.chain(named).chain(others).chain(handed_on).collect();
        Acl(aces.into()).beyond_mode(mode, kind)
    }

    /// `None` where it says what the mode says.
    pub(super) fn beyond_mode(self, mode: u32, kind: ObjectKind) -> Option<Acl> {
        (self != Acl::of_mode(mode, kind)).then_some(self)
    }

    /// What an object that is made in a directory begins with (section 6.4.3.1); `None` where
    /// nothing is handed on.
    pub fn inherited(&self, kind: ObjectKind) -> Option<Acl> {
        let aces: Arc<[Ace]> = (self.0.iter().filter_map(|ace| ace.inherited(kind))).collect();
        (!aces.is_empty()).then_some(Acl(aces))
    }

    /// Whether an object may have it (section 6.2.1.4.1): only directories hand entries on, and
    /// one that says nothing of its directory is handed on.
    pub(super) fn fits(&self, kind: ObjectKind) -> bool {
        let fits = |ace: &Ace| match kind {
            ObjectKind::Directory => ace.is_effective() || ace.inheritance.is_inherited(),
            ObjectKind::Symlink => false,
            _ => ace.inheritance == Inheritance::default(),
        };
        kind != ObjectKind::Symlink && self.0.iter().all(fits)
    }
}

#[cfg(test)]
mod tests;

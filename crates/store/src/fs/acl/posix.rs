//! Lists of the withdrawn POSIX draft (1003.1e, 17), and how they are said by those of NFSv4
//! (draft-ietf-nfsv4-acl-mapping).

use super::{Ace, AceKind, AceWho, Acl, Inheritance, Rights};
use crate::fs::{Attr, Error, ObjectKind};

/// A list of POSIX: three bits of a mode for each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PosixAcl {
    /// The owner.
    pub owner: u32,
    /// Users by their numbers.
    pub users: Vec<(u32, u32)>,
    /// The group of the object.
    pub group: u32,
    /// Groups by their numbers.
    pub groups: Vec<(u32, u32)>,
    /// What users and groups have at most.
    pub mask: Option<u32>,
    /// All others.
    pub other: u32,
}

impl PosixAcl {
    /// What a mode says.
    pub fn of_mode(mode: u32) -> PosixAcl {
        PosixAcl {
            owner: mode >> 6 & 7,
            group: mode >> 3 & 7,
            other: mode & 7,
            ..PosixAcl::default()
        }
    }

    /// The list of an object, as far as POSIX has words for it: what each user and group that is
    /// named has, without its groups.
    pub fn of(attr: &Attr) -> PosixAcl {
        match &attr.acl {
            None => PosixAcl::of_mode(attr.mode),
            Some(acl) => PosixAcl::of_aces(acl.aces().iter().filter(|ace| ace.is_effective())),
        }
    }

    /// What a directory hands on; `None` where that is nothing.
    pub fn handed_on(attr: &Attr) -> Option<PosixAcl> {
        let aces = attr.acl.as_ref()?.aces().iter();
        let mut aces = aces.filter(|ace| ace.inheritance.is_inherited()).peekable();
        aces.peek()?;
        Some(PosixAcl::of_aces(aces))
    }

    fn of_aces<'a>(aces: impl Iterator<Item = &'a Ace>) -> PosixAcl {
        let all = aces.map(|ace| Ace {
            inheritance: Inheritance::default(),
            ..*ace
        });
        let all = Acl(all.collect());
        let bits = |class| {
            // Of the entries for one in several groups only one would count: what is denied to
            // one group is granted to none, nor to users that may be members.
            let is_denied = |ace: &Ace| match (ace.kind, ace.who) {
                (AceKind::Deny, AceWho::Group | AceWho::Members(_)) => class != AceWho::Everyone,
                (AceKind::Deny, AceWho::User(_)) => class == AceWho::Owner,
                _ => false,
            };
            let is_meant =
                |ace: &Ace| ace.who == AceWho::Everyone || ace.who == class || is_denied(ace);
            all.verdict(is_meant).allowed.bits()
        };
        let mut acl = PosixAcl {
            owner: bits(AceWho::Owner),
            group: bits(AceWho::Group),
            other: bits(AceWho::Everyone),
            ..PosixAcl::default()
        };
        for ace in all.aces() {
            let (list, id) = match ace.who {
                AceWho::User(id) => (&mut acl.users, id),
                AceWho::Members(id) => (&mut acl.groups, id),
                _ => continue,
            };
            if list.iter().all(|(known, _)| *known != id) {
                list.push((id, bits(ace.who)));
            }
        }
        acl.users.sort_unstable();
        acl.groups.sort_unstable();
        if !acl.users.is_empty() || !acl.groups.is_empty() {
            let named = acl.users.iter().chain(&acl.groups);
            acl.mask = Some(named.fold(acl.group, |mask, (_, bits)| mask | bits));
        }
        acl
    }

    /// Whether none is named and no list needs to say it.
    fn is_mode(&self) -> bool {
        self.users.is_empty() && self.groups.is_empty()
    }

    /// Entries that say the same, in the order that POSIX looks for them: whoever is meant by
    /// one has nothing of those that follow, but that a member of several groups has what each
    /// of them has.
    fn aces(&self, kind: ObjectKind) -> Vec<Ace> {
        let mask = self.mask.unwrap_or(7);
        let group = (AceWho::Group, self.group & mask);
        if self.is_mode() {
            let mode = self.owner << 6 | group.1 << 3 | self.other;
            return Acl::of_mode(mode, kind).aces().to_vec();
        }
        let user = |&(id, bits): &(u32, u32)| (AceWho::User(id), bits & mask);
        let members = |&(id, bits): &(u32, u32)| (AceWho::Members(id), bits & mask);
        let users: Vec<_> = self.users.iter().map(user).collect();
        let groups: Vec<_> = [group]
            .into_iter()
            .chain(self.groups.iter().map(members))
            .collect();
        let union =
            |list: &[(AceWho, u32)], last| list.iter().fold(last, |all, (_, bits)| all | bits);
        let of_groups = union(&groups, self.other);
        let of_users = union(&users, of_groups);
        let ace = |kind_of, who, bits| Ace::new(kind_of, who, Rights::of_bits(bits, kind));
        let mut aces = vec![ace(AceKind::Allow, AceWho::Owner, self.owner)];
        aces[0].rights = aces[0].rights | Rights::OF_OWNER | Rights::OF_EVERYONE;
        aces.push(ace(AceKind::Deny, AceWho::Owner, of_users & !self.owner));
        for (who, bits) in users {
            aces.push(ace(AceKind::Allow, who, bits));
            aces.push(ace(AceKind::Deny, who, of_groups & !bits));
        }
        for &(who, bits) in &groups {
            aces.push(ace(AceKind::Allow, who, bits));
        }
        for (who, bits) in groups {
            aces.push(ace(AceKind::Deny, who, self.other & !bits));
        }
        let others = Rights::of_bits(self.other, kind) | Rights::OF_EVERYONE;
        aces.push(Ace::new(AceKind::Allow, AceWho::Everyone, others));
        // One that is named without any right is told of all the same.
        aces.retain(|ace| ace.rights != Rights::NONE || ace.kind == AceKind::Allow);
        aces
    }
}

impl Acl {
    /// What says the same as lists of POSIX: that of an object, and what it hands on.
    ///
    /// # Errors
    /// [`Error::FBig`] for too many entries, [`Error::Inval`] where what is no directory would
    /// hand something on.
    pub fn of_posix(
        access: &PosixAcl,
        handed_on: Option<&PosixAcl>,
        kind: ObjectKind,
    ) -> Result<Acl, Error> {
        match handed_on {
            Some(_) if kind != ObjectKind::Directory => Err(Error::Inval),
            _ => Acl::new(&Acl::of_posix_below(access, handed_on, kind).0),
        }
    }

    /// The same for lists that the file system below keeps, however many entries they have.
    pub(in crate::fs) fn of_posix_below(
        access: &PosixAcl,
        handed_on: Option<&PosixAcl>,
        kind: ObjectKind,
    ) -> Acl {
        let mut aces = access.aces(kind);
        if let Some(handed_on) = handed_on {
            let flags = Inheritance::FILE | Inheritance::DIRECTORY | Inheritance::ONLY;
            aces.extend(handed_on.aces(kind).into_iter().map(|ace| Ace {
                inheritance: Inheritance(flags),
                ..ace
            }));
        }
        Acl(aces.into())
    }
}

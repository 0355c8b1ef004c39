//! Locks in the order of their first byte, as a balanced tree (AVL) in which each node
//! knows how far the locks below it reach: so a lock that is in the way is found without
//! looking at the others.

use std::cmp::Ordering;

use machine::work;

use super::{Lock, LockOwner};

/// How far locks reach: the last byte of the one that reaches furthest, and of the one
/// that does so among those of all other owners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reach([Option<(u64, LockOwner)>; 2]);

impl Reach {
    fn add(&mut self, end: u64, owner: LockOwner) {
        let [first, second] = &mut self.0;
        match first {
            Some((_, of)) if *of == owner => *first = (*first).max(Some((end, owner))),
            Some((to, _)) if *to >= end => *second = (*second).max(Some((end, owner))),
            _ => *second = first.replace((end, owner)),
        }
    }

    fn add_all(&mut self, other: Reach) {
        for (end, owner) in other.0.into_iter().flatten() {
            self.add(end, owner);
        }
    }

    /// Whether a lock that is not `owner`'s reaches as far as byte `to`.
    fn has_other(&self, owner: LockOwner, to: u64) -> bool {
        let mut others = self.0.iter().flatten();
        others.any(|&(end, of)| of != owner && end >= to)
    }
}

#[derive(Clone, Debug)]
struct Node {
    lock: Lock,
    left: Link,
    right: Link,
    height: u8,
    /// Of write locks here and below.
    exclusive: Reach,
    /// Of all locks here and below.
    any: Reach,
}

type Link = Option<Box<Node>>;

fn height(link: &Link) -> u8 {
    link.as_ref().map_or(0, |node| node.height)
}

/// The order of the tree; no owner has two locks over one byte.
fn order(a: &Lock, b: &Lock) -> Ordering {
    (a.range.start, a.owner).cmp(&(b.range.start, b.owner))
}

impl Node {
    fn new(lock: Lock, left: Link, right: Link) -> Box<Node> {
        let mut node = Box::new(Node {
            lock,
            left,
            right,
            height: 0,
            exclusive: Reach::default(),
            any: Reach::default(),
        });
        node.update();
        node
    }

    fn update(&mut self) {
        let Lock {
            range,
            owner,
            is_exclusive,
        } = self.lock;
        self.height = 1 + height(&self.left).max(height(&self.right));
        (self.exclusive, self.any) = Default::default();
        self.any.add(range.end, owner);
        if is_exclusive {
            self.exclusive.add(range.end, owner);
        }
        for below in [&self.left, &self.right].into_iter().flatten() {
            self.exclusive.add_all(below.exclusive);
            self.any.add_all(below.any);
        }
    }

    /// Whether it or one below may be in the way, by how far they reach.
    fn reaches(&self, wanted: &Lock) -> bool {
        let reach = match wanted.is_exclusive {
            true => &self.any,
            false => &self.exclusive,
        };
        reach.has_other(wanted.owner, wanted.range.start)
    }

    /// The same tree, with heights that differ by one at most.
    fn balance(mut self: Box<Node>) -> Box<Node> {
        self.update();
        match i16::from(height(&self.left)) - i16::from(height(&self.right)) {
            2 => {
                let left = self.left.take().expect("it is the higher one");
                let is_outside = height(&left.left) >= height(&left.right);
                let left = if is_outside { left } else { left.turn_left() };
                self.left = Some(left);
                self.turn_right()
            }
            -2 => {
                let right = self.right.take().expect("it is the higher one");
                let is_outside = height(&right.right) >= height(&right.left);
                let right = if is_outside {
                    right
                } else {
                    right.turn_right()
                };
                self.right = Some(right);
                self.turn_left()
            }
            _ => self,
        }
    }

    fn turn_left(mut self: Box<Node>) -> Box<Node> {
        let mut up = self.right.take().expect("there is one to turn up");
        self.right = up.left.take();
        self.update();
        up.left = Some(self);
        up.update();
        up
    }

    fn turn_right(mut self: Box<Node>) -> Box<Node> {
        let mut up = self.left.take().expect("there is one to turn up");
        self.left = up.right.take();
        self.update();
        up.right = Some(self);
        up.update();
        up
    }
}

fn insert(link: Link, lock: Lock) -> Box<Node> {
    work::spend(1);
    let Some(mut node) = link else {
        return Node::new(lock, None, None);
    };
    let side = match order(&lock, &node.lock) {
        Ordering::Less => &mut node.left,
        _ => &mut node.right,
    };
    *side = Some(insert(side.take(), lock));
    node.balance()
}

fn remove(link: Link, lock: &Lock) -> Link {
    work::spend(1);
    let mut node = link?;
    match order(lock, &node.lock) {
        Ordering::Less => node.left = remove(node.left.take(), lock),
        Ordering::Greater => node.right = remove(node.right.take(), lock),
        Ordering::Equal => {
            let Some(right) = node.right.take() else {
                return node.left;
            };
            let (first, right) = remove_first(right);
            (node.lock, node.right) = (first, right);
        }
    }
    Some(node.balance())
}

fn remove_first(mut node: Box<Node>) -> (Lock, Link) {
    work::spend(1);
    let Some(left) = node.left.take() else {
        return (node.lock, node.right);
    };
    let (first, left) = remove_first(left);
    node.left = left;
    (first, Some(node.balance()))
}

/// A balanced tree of ordered locks.
fn build(locks: &[Lock]) -> Link {
    let (left, rest) = locks.split_at(locks.len() / 2);
    let (&lock, right) = rest.split_first()?;
    Some(Node::new(lock, build(left), build(right)))
}

/// Locks of any owners, of which none is in another's way.
#[derive(Clone, Debug, Default)]
pub(super) struct LockTree {
    root: Link,
    len: usize,
}

impl LockTree {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn insert(&mut self, lock: Lock) {
        self.root = Some(insert(self.root.take(), lock));
        self.len += 1;
    }

    /// Takes these out, which are there.
    pub(super) fn remove(&mut self, locks: &[Lock]) {
        let descents = locks.len() * usize::from(height(&self.root));
        if descents <= self.len {
            for lock in locks {
                self.root = remove(self.root.take(), lock);
            }
            self.len -= locks.len();
            return;
        }
        // Where many go at once, what stays is put together anew.
        let mut goes = locks.to_vec();
        goes.sort_unstable_by(order);
        let stays = |lock: &&Lock| goes.binary_search_by(|gone| order(gone, lock)).is_err();
        let left: Vec<_> = self.iter().filter(stays).copied().collect();
        work::spend(self.len as u64);
        (self.root, self.len) = (build(&left), left.len());
    }

    /// The first lock of another owner that keeps this one from being had.
    pub(super) fn conflict(&self, wanted: &Lock) -> Option<&Lock> {
        let mut at = self.root.as_deref();
        while let Some(node) = at {
            work::spend(1);
            let left = node.left.as_deref();
            if left.is_some_and(|left| left.reaches(wanted)) {
                // Where none of those overlaps, one begins behind what is wanted, and so
                // do all further right.
                at = left;
                continue;
            }
            if node.lock.range.start > wanted.range.end {
                return None;
            }
            if node.lock.is_in_the_way_of(wanted) {
                return Some(&node.lock);
            }
            at = node.right.as_deref().filter(|right| right.reaches(wanted));
        }
        None
    }

    /// All, in the order of their first byte.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Lock> {
        let mut path = Vec::new();
        let mut at = self.root.as_deref();
        std::iter::from_fn(move || {
            while let Some(node) = at {
                path.push(node);
                at = node.left.as_deref();
            }
            let node = path.pop()?;
            at = node.right.as_deref();
            Some(&node.lock)
        })
    }

    #[cfg(test)]
    pub(super) fn check(&self) {
        fn check(link: &Link) -> u8 {
            let Some(node) = link else { return 0 };
            let (left, right) = (check(&node.left), check(&node.right));
            assert!(left.abs_diff(right) <= 1, "it is balanced");
            let mut anew = node.clone();
            anew.update();
            assert_eq!(
                (anew.height, anew.exclusive, anew.any),
                (node.height, node.exclusive, node.any)
            );
            anew.height
        }
        check(&self.root);
        assert_eq!(self.iter().count(), self.len);
    }
}

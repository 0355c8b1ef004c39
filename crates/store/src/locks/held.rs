//! The claims that are held in a stripe: a few side by side, where comparing them all is
//! quickest, and the others in an AVL tree in order of where they begin. There each node
//! knows how far the claims below it reach, so that whether something is in the way of a
//! claim is found on one way down.

use std::cmp::Ordering;

use machine::work;

use super::Claim;

/// Claims that lie side by side. Beyond about as many the tree is quicker.
const FEW_MAX: usize = 64;

/// Claims side by side that are compared within a unit.
const FEW_OF_UNIT: usize = 8;

/// The place of a node; node 0 stands for no node.
type Index = u32;
const NONE: Index = 0;

const LEFT: usize = 0;
const RIGHT: usize = 1;

#[derive(Clone, Copy)]
struct Node {
    claim: Claim,
    id: u64,
    /// Where the last of its claim and all below ends; the same of exclusive claims.
    to_max: u64,
    exclusive_to_max: u64,
    /// Of a free node, the next free one is on the left.
    children: [Index; 2],
    height: u8,
}

pub(super) struct HeldClaims {
    few: Vec<(Claim, u64)>,
    /// Nodes are used again: nothing is allocated in the long run.
    nodes: Vec<Node>,
    root: Index,
    free: Index,
}

impl Default for HeldClaims {
    fn default() -> HeldClaims {
        let none = Node {
            claim: Claim {
                from: 0,
                to: 0,
                is_exclusive: false,
            },
            id: 0,
            to_max: 0,
            exclusive_to_max: 0,
            children: [NONE; 2],
            height: 0,
        };
        HeldClaims {
            few: Vec::new(),
            nodes: vec![none],
            root: NONE,
            free: NONE,
        }
    }
}

impl HeldClaims {
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.few.is_empty() && self.root == NONE
    }

    #[inline]
    fn node(&self, at: Index) -> &Node {
        &self.nodes[at as usize]
    }

    #[inline]
    fn node_mut(&mut self, at: Index) -> &mut Node {
        &mut self.nodes[at as usize]
    }

    /// The number of a claim that is in the way of this one.
    #[inline]
    pub(super) fn conflict(&self, claim: &Claim) -> Option<u64> {
        let mut few = self.few.iter();
        if let Some((_, id)) = few.find(|(held, _)| held.conflicts(claim)) {
            work::spend(1);
            return Some(*id);
        }
        let mut units = self.few.len().div_ceil(FEW_OF_UNIT) as u64;
        let mut at = self.root;
        let found = loop {
            if at == NONE {
                break None;
            }
            units += 1;
            let node = self.node(at);
            if node.claim.conflicts(claim) {
                break Some(node.id);
            }
            let left = self.node(node.children[LEFT]);
            let reach = match claim.is_exclusive {
                true => left.to_max,
                false => left.exclusive_to_max,
            };
            // What reaches so far on the left conflicts, or begins behind the claim,
            // as does then all on the right.
            at = node.children[usize::from(reach <= claim.from)];
        };
        work::spend(units);
        found
    }

    #[inline]
    pub(super) fn insert(&mut self, claim: Claim, id: u64) {
        match self.few.len() < FEW_MAX {
            true => self.few.push((claim, id)),
            false => self.insert_node(claim, id),
        }
    }

    fn insert_node(&mut self, claim: Claim, id: u64) {
        let node = Node {
            claim,
            id,
            to_max: claim.to,
            exclusive_to_max: claim.exclusive_to(),
            children: [NONE; 2],
            height: 1,
        };
        let new = match self.free {
            NONE => {
                self.nodes.push(node);
                Index::try_from(self.nodes.len() - 1).expect("fewer claims than 1 << 32")
            }
            free => {
                self.free = self.node(free).children[LEFT];
                *self.node_mut(free) = node;
                free
            }
        };
        self.root = self.insert_below(self.root, new);
        work::spend(u64::from(self.node(self.root).height));
    }

    /// Returns the node that is then where `at` was, as all of these do.
    fn insert_below(&mut self, at: Index, new: Index) -> Index {
        if at == NONE {
            return new;
        }
        let side = usize::from(self.node(new).claim >= self.node(at).claim);
        let child = self.insert_below(self.node(at).children[side], new);
        self.node_mut(at).children[side] = child;
        self.balance(at)
    }

    /// Takes a claim out and returns its number. Claims that are the same stand for
    /// each other.
    #[inline]
    pub(super) fn remove(&mut self, claim: &Claim) -> u64 {
        match self.few.iter().position(|(held, _)| held == claim) {
            Some(at) => self.few.swap_remove(at).1,
            None => self.remove_node(claim),
        }
    }

    fn remove_node(&mut self, claim: &Claim) -> u64 {
        work::spend(u64::from(self.node(self.root).height));
        let (gone, root) = self.remove_below(self.root, claim);
        self.root = root;
        let free = self.free;
        self.node_mut(gone).children[LEFT] = free;
        self.free = gone;
        self.node(gone).id
    }

    /// Returns the node that was taken out besides.
    fn remove_below(&mut self, at: Index, claim: &Claim) -> (Index, Index) {
        assert_ne!(at, NONE, "a claim is held until it is released");
        let node = self.node(at);
        let [left, right] = node.children;
        let side = match claim.cmp(&node.claim) {
            Ordering::Less => LEFT,
            Ordering::Greater => RIGHT,
            Ordering::Equal if left == NONE || right == NONE => return (at, left.max(right)),
            Ordering::Equal => {
                let (first, rest) = self.remove_first(right);
                self.node_mut(first).children = [left, rest];
                return (at, self.balance(first));
            }
        };
        let (gone, child) = self.remove_below(node.children[side], claim);
        self.node_mut(at).children[side] = child;
        (gone, self.balance(at))
    }

    fn remove_first(&mut self, at: Index) -> (Index, Index) {
        let [left, right] = self.node(at).children;
        if left == NONE {
            return (at, right);
        }
        let (first, child) = self.remove_first(left);
        self.node_mut(at).children[LEFT] = child;
        (first, self.balance(at))
    }

    /// Something below a node has changed.
    fn balance(&mut self, at: Index) -> Index {
        let height = |tree: &Self, at: Index| tree.node(at).height;
        let children = self.node(at).children;
        let heights = children.map(|child| height(self, child));
        if heights[LEFT].abs_diff(heights[RIGHT]) < 2 {
            self.sum_up(at);
            return at;
        }
        let high = usize::from(heights[RIGHT] > heights[LEFT]);
        let below = self.node(children[high]).children;
        if height(self, below[1 - high]) > height(self, below[high]) {
            self.node_mut(at).children[high] = self.rotate(children[high], 1 - high);
        }
        self.rotate(at, high)
    }

    /// The child on this side comes above its parent.
    fn rotate(&mut self, at: Index, side: usize) -> Index {
        let above = self.node(at).children[side];
        self.node_mut(at).children[side] = self.node(above).children[1 - side];
        self.node_mut(above).children[1 - side] = at;
        self.sum_up(at);
        self.sum_up(above);
        above
    }

    fn sum_up(&mut self, at: Index) {
        let node = self.node(at);
        let [left, right] = node.children.map(|child| self.node(child));
        let to_max = node.claim.to.max(left.to_max).max(right.to_max);
        let exclusive_to_max = node.claim.exclusive_to();
        let exclusive_to_max = exclusive_to_max.max(left.exclusive_to_max);
        let exclusive_to_max = exclusive_to_max.max(right.exclusive_to_max);
        let height = 1 + left.height.max(right.height);
        let node = self.node_mut(at);
        (node.to_max, node.exclusive_to_max, node.height) = (to_max, exclusive_to_max, height);
    }
}

//! In which order the tasks of one nexus on one logical unit begin (SAM-5,
//! section 8): SIMPLE tasks as they come, an ORDERED one alone after all before
//! it, a HEAD OF QUEUE one at once.

use std::collections::VecDeque;

use machine::Tag;
use wire::iscsi::TaskAttribute;

use engine::ConnectionId;

/// A task, on whichever connection of the session.
pub(crate) type TaskId = (ConnectionId, Tag);

/// A task that may not begin yet.
struct HeldTask {
    id: TaskId,
    is_ordered: bool,
}

/// The tasks of one nexus on one logical unit.
#[derive(Default)]
pub(crate) struct Order {
    /// Tasks that may begin, or have.
    enabled: u32,
    /// The only one of them that is ORDERED, if there is one.
    ordered: Option<TaskId>,
    /// In the order they came; as many as the session's window lets in.
    held: VecDeque<HeldTask>,
}

impl Order {
    /// A task has come; whether it may begin.
    #[inline]
    pub(crate) fn enter(&mut self, id: TaskId, attribute: TaskAttribute) -> bool {
        let is_free = self.held.is_empty() && self.ordered.is_none();
        match attribute {
            TaskAttribute::Untagged | TaskAttribute::Simple | TaskAttribute::Aca if is_free => {}
            TaskAttribute::HeadOfQueue => {}
            TaskAttribute::Ordered if is_free && self.enabled == 0 => self.ordered = Some(id),
            _ => {
                let is_ordered = attribute == TaskAttribute::Ordered;
                self.held.push_back(HeldTask { id, is_ordered });
                return false;
            }
        }
        self.enabled += 1;
        true
    }

    /// Tasks that are not over.
    pub(crate) fn len(&self) -> usize {
        self.enabled as usize + self.held.len()
    }

    /// A task has ended, or will never begin: calls `begin` with those that now
    /// may.
    #[inline]
    pub(crate) fn leave(&mut self, id: TaskId, begin: impl FnMut(TaskId)) {
        if self.held.is_empty() && self.ordered.is_none() {
            self.enabled -= 1;
            return;
        }
        self.leave_in_order(id, begin);
    }

    /// The logical unit is gone: the tasks that had not begun.
    pub(crate) fn into_held(self) -> impl Iterator<Item = TaskId> {
        self.held.into_iter().map(|held| held.id)
    }

    #[cold]
    fn leave_in_order(&mut self, id: TaskId, mut begin: impl FnMut(TaskId)) {
        match self.held.iter().position(|held| held.id == id) {
            Some(at) => drop(self.held.remove(at)),
            None => self.enabled -= 1,
        }
        if self.ordered == Some(id) {
            self.ordered = None;
        }
        while let Some(first) = self.held.front() {
            let waits = self.ordered.is_some() || (first.is_ordered && self.enabled > 0);
            if waits {
                return;
            }
            let HeldTask { id, is_ordered } = self.held.pop_front().expect("looked at");
            self.ordered = is_ordered.then_some(id);
            self.enabled += 1;
            begin(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(tag: Tag) -> TaskId {
        let connection = ConnectionId {
            index: 1,
            generation: 0,
        };
        (connection, tag)
    }

    fn leave(order: &mut Order, tag: Tag) -> Vec<Tag> {
        let mut begun = Vec::new();
        order.leave(id(tag), |(_, tag)| begun.push(tag));
        begun
    }

    #[test]
    fn an_ordered_task_is_alone_between_those_before_and_behind_it() {
        use TaskAttribute::{Ordered, Simple, Untagged};
        let mut order = Order::default();
        let enter = |order: &mut Order, tag, attribute| order.enter(id(tag), attribute);
        assert!(enter(&mut order, 1, Simple));
        assert!(enter(&mut order, 2, Untagged));
        assert!(!enter(&mut order, 3, Ordered));
        assert!(!enter(&mut order, 4, Simple));
        assert!(!enter(&mut order, 5, Simple));
        assert!(!enter(&mut order, 6, Ordered));
        assert_eq!(leave(&mut order, 1), [] as [Tag; 0]);
        assert_eq!(leave(&mut order, 2), [3]);
        assert!(!enter(&mut order, 7, Simple));
        assert_eq!(leave(&mut order, 3), [4, 5]);
        assert_eq!(leave(&mut order, 5), [] as [Tag; 0]);
        assert_eq!(leave(&mut order, 4), [6]);
        assert_eq!(leave(&mut order, 6), [7]);
        assert_eq!(leave(&mut order, 7), [] as [Tag; 0]);
        assert!(enter(&mut order, 8, Ordered), "nothing is left");
    }

    #[test]
    fn a_head_of_queue_task_begins_at_once() {
        use TaskAttribute::{HeadOfQueue, Ordered, Simple};
        let mut order = Order::default();
        assert!(order.enter(id(1), Ordered));
        assert!(!order.enter(id(2), Ordered));
        assert!(order.enter(id(3), HeadOfQueue));
        // The next ordered one waits for it all the same.
        assert_eq!(leave(&mut order, 1), [] as [Tag; 0]);
        assert!(!order.enter(id(4), Simple));
        assert_eq!(leave(&mut order, 3), [2]);
        assert_eq!(leave(&mut order, 2), [4]);
    }

    #[test]
    fn a_task_that_ends_before_it_begins_holds_up_no_other() {
        use TaskAttribute::{Ordered, Simple};
        let mut order = Order::default();
        assert!(order.enter(id(1), Simple));
        assert!(!order.enter(id(2), Ordered));
        assert!(!order.enter(id(3), Simple));
        assert_eq!(leave(&mut order, 2), [3]);
        assert_eq!(leave(&mut order, 3), [] as [Tag; 0]);
        assert_eq!(leave(&mut order, 1), [] as [Tag; 0]);
    }
}

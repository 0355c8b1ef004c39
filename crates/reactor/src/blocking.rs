//! Work that may block, beside the reactors. What concerns one subject is done in
//! the order that it came, one piece after the other. Each subject that has work
//! has a thread meanwhile: what waits for a disk that does not answer delays nothing
//! of another.

use crate::cpu;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Threads that wait for work at most; those beyond end.
const IDLE_MAX: usize = 2;

/// Work by its subject. Its callers bound how much there is.
pub struct Blocking<K, W> {
    queues: Mutex<Queues<K, W>>,
    bell: Condvar,
    /// Nothing waits and nothing is under way.
    all_done: Condvar,
}

struct Queues<K, W> {
    /// What waits, of each subject that has work; nothing waits where all of it is
    /// under way.
    waiting: BTreeMap<K, VecDeque<W>>,
    /// Subjects with work that waits and none under way; the first waits longest.
    ready: VecDeque<K>,
    /// Threads that wait for work.
    idle: usize,
    is_closed: bool,
}

impl<K, W> Default for Blocking<K, W> {
    fn default() -> Self {
        Blocking {
            queues: Mutex::new(Queues {
                waiting: BTreeMap::new(),
                ready: VecDeque::new(),
                idle: 0,
                is_closed: false,
            }),
            bell: Condvar::new(),
            all_done: Condvar::new(),
        }
    }
}

impl<K: Ord + Copy, W> Queues<K, W> {
    fn take(&mut self) -> Option<(K, W)> {
        let subject = self.ready.pop_front()?;
        let waiting = self.waiting.get_mut(&subject);
        let work = waiting.and_then(VecDeque::pop_front);
        Some((subject, work.expect("a subject that is ready has work")))
    }

    fn ended(&mut self, subject: K) {
        match self.waiting.get(&subject).is_some_and(|w| !w.is_empty()) {
            true => self.ready.push_back(subject),
            false => drop(self.waiting.remove(&subject)),
        }
    }
}

impl<K: Ord + Copy, W> Blocking<K, W> {
    fn queues(&self) -> MutexGuard<'_, Queues<K, W>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pieces of work that wait, or are under way but for the last of a subject.
    pub fn waiting(&self) -> usize {
        self.queues().waiting.values().map(VecDeque::len).sum()
    }

    /// Adds work, to be done after all that was added before of its subject.
    pub fn add(&self, subject: K, work: W) {
        let mut queues = self.queues();
        if queues.is_closed {
            // What a work does when it is dropped is not ours to hold up.
            drop(queues);
            return drop(work);
        }
        match queues.waiting.get_mut(&subject) {
            Some(waiting) => waiting.push_back(work),
            None => {
                queues.waiting.insert(subject, VecDeque::from([work]));
                queues.ready.push_back(subject);
            }
        }
        drop(queues);
        self.bell.notify_one();
    }

    /// Its threads end when they come back, and no work is done any more.
    pub fn close(&self) {
        let mut queues = self.queues();
        queues.is_closed = true;
        queues.ready.clear();
        let left = std::mem::take(&mut queues.waiting);
        drop(queues);
        drop(left);
        self.bell.notify_all();
    }

    /// Waits until nothing waits and nothing is under way, at most `timeout`.
    pub fn wait_until_done(&self, timeout: Duration) {
        let queues = self.queues();
        let done = (self.all_done)
            .wait_timeout_while(queues, timeout, |queues| !queues.waiting.is_empty());
        drop(done);
    }

    /// Does what is next in this thread, where there are no others; false: nothing is.
    pub fn run_next(&self, run: impl FnOnce(W)) -> bool {
        let mut queues = self.queues();
        let Some((subject, work)) = queues.take() else {
            return false;
        };
        queues.ended(subject);
        drop(queues);
        run(work);
        true
    }
}

impl<K: Ord + Copy + Send + 'static, W: Send + 'static> Blocking<K, W> {
    /// Starts the first of its threads. `run` does a piece of work and says whether
    /// the thread goes on; it must not panic.
    ///
    /// # Errors
    /// Where the system has no thread for it.
    pub fn start(
        self: &Arc<Self>,
        name: &'static str,
        run: impl Fn(W) -> bool + Send + Sync + 'static,
    ) -> io::Result<()> {
        self.spawn(name, Arc::new(run))
    }

    fn spawn<R>(self: &Arc<Self>, name: &'static str, run: Arc<R>) -> io::Result<()>
    where
        R: Fn(W) -> bool + Send + Sync + 'static,
    {
        let blocking = Arc::clone(self);
        let builder = thread::Builder::new().name(name.into());
        builder.spawn(move || blocking.serve(name, &run)).map(drop)
    }

    fn serve<R>(self: &Arc<Self>, name: &'static str, run: &Arc<R>)
    where
        R: Fn(W) -> bool + Send + Sync + 'static,
    {
        // A reactor's processor is not for us.
        cpu::unpin();
        while let Some((subject, work, is_last)) = self.next() {
            // A thread that begins a work leaves one that waits. Where none can be
            // spawned, the rest waits until one is done.
            if is_last {
                let _ = self.spawn(name, Arc::clone(run));
            }
            let goes_on = run(work);
            let mut queues = self.queues();
            queues.ended(subject);
            if queues.waiting.is_empty() {
                self.all_done.notify_all();
            }
            drop(queues);
            if !goes_on {
                return;
            }
        }
    }

    /// Waits for work; also whether no thread waits any more. `None` where enough
    /// others wait, and at the end.
    fn next(&self) -> Option<(K, W, bool)> {
        let mut queues = self.queues();
        // Work that its subject got while it ran has woken no thread.
        if queues.idle >= IDLE_MAX && queues.ready.is_empty() {
            return None;
        }
        queues.idle += 1;
        let next = loop {
            if queues.is_closed {
                break None;
            }
            if let Some(next) = queues.take() {
                break Some(next);
            }
            queues = (self.bell.wait(queues)).unwrap_or_else(PoisonError::into_inner);
        };
        queues.idle -= 1;
        next.map(|(subject, work)| (subject, work, queues.idle == 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Instant;

    type Work = Box<dyn FnOnce() + Send>;

    /// Nothing that is tested takes so long.
    const PATIENCE: Duration = Duration::from_secs(30);

    fn blocking() -> Arc<Blocking<u32, Work>> {
        let blocking = Arc::new(Blocking::default());
        let run = |work: Work| {
            work();
            true
        };
        blocking.start("test", run).expect("a thread");
        blocking
    }

    /// Work that says that it has begun, and hangs until the sender goes.
    fn hang(begun: &Sender<()>) -> (Sender<()>, Work) {
        let (release, held): (_, Receiver<()>) = channel();
        let begun = begun.clone();
        let work = move || {
            let _ = begun.send(());
            let _ = held.recv();
        };
        (release, Box::new(work))
    }

    /// What work owns is let go of by then, whatever it has said before.
    #[test]
    fn nothing_is_under_way_when_all_is_done() {
        let blocking = blocking();
        let (begin, begun) = channel();
        let owned = Arc::new(());
        for subject in 0..50 {
            let (held, begin) = (owned.clone(), begin.clone());
            let work = move || {
                let _ = begin.send(());
                thread::sleep(Duration::from_millis(1));
                drop(held);
            };
            blocking.add(subject % 3, Box::new(work));
            begun.recv().expect("it begins");
            blocking.wait_until_done(PATIENCE);
            assert_eq!(Arc::strong_count(&owned), 1);
        }
        let (release, work) = hang(&begin);
        blocking.add(0, work);
        begun.recv().expect("it begins");
        // What hangs is waited for so long, and no longer.
        blocking.wait_until_done(Duration::from_millis(1));
        drop(release);
    }

    #[test]
    fn subjects_that_hang_delay_no_other() {
        let blocking = blocking();
        let (begin, begun) = channel();
        let mut releases = Vec::new();
        for subject in 0..20 {
            let (release, work) = hang(&begin);
            releases.push(release);
            blocking.add(subject, work);
            begun.recv_timeout(PATIENCE).expect("another hangs");
        }
        drop(releases);
    }

    #[test]
    fn work_of_one_subject_is_done_in_its_order() {
        let blocking = blocking();
        let (tell, told) = channel();
        let (begin, begun) = channel();
        let (release, work) = hang(&begin);
        blocking.add(7, work);
        begun.recv_timeout(PATIENCE).expect("it begins");
        for n in 0..100 {
            let tell = tell.clone();
            blocking.add(7, Box::new(move || tell.send(n).expect("we listen")));
        }
        assert!(told.try_recv().is_err(), "one piece at a time");
        drop((tell, release));
        assert_eq!(told.iter().collect::<Vec<_>>(), Vec::from_iter(0..100));
    }

    #[test]
    fn threads_that_are_not_needed_any_more_end() {
        let blocking = blocking();
        let (begin, begun) = channel();
        let hung: Vec<_> = (0..9).map(|_| hang(&begin)).collect();
        let mut releases = Vec::new();
        for (subject, (release, work)) in (0..).zip(hung) {
            releases.push(release);
            blocking.add(subject, work);
        }
        (0..9).for_each(|_| begun.recv_timeout(PATIENCE).expect("it begins"));
        drop(releases);
        // Each thread has it, and so have we.
        let give_up = Instant::now() + PATIENCE;
        while Arc::strong_count(&blocking) > 1 + IDLE_MAX {
            assert!(Instant::now() < give_up, "threads stay");
            thread::sleep(Duration::from_millis(1));
        }
        blocking.close();
        while Arc::strong_count(&blocking) > 1 {
            assert!(Instant::now() < give_up, "threads stay");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn work_that_came_meanwhile_is_done_though_its_thread_is_one_too_many() {
        let blocking = blocking();
        let (begin, begun) = channel();
        let mut releases = Vec::new();
        for subject in 0..3 {
            let (release, work) = hang(&begin);
            releases.push(release);
            blocking.add(subject, work);
            begun.recv_timeout(PATIENCE).expect("it begins");
        }
        releases.remove(0);
        let give_up = Instant::now() + PATIENCE;
        while blocking.queues().idle < IDLE_MAX {
            assert!(Instant::now() < give_up, "it does not come back");
            thread::sleep(Duration::from_millis(1));
        }
        let (tell, told) = channel();
        blocking.add(1, Box::new(move || tell.send(()).expect("we listen")));
        releases.remove(0);
        told.recv_timeout(PATIENCE).expect("it is done");
    }

    #[test]
    fn work_that_comes_after_the_end_is_dropped() {
        let blocking = blocking();
        blocking.close();
        let (tell, told) = channel::<()>();
        blocking.add(1, Box::new(move || tell.send(()).expect("we listen")));
        assert!(told.recv().is_err());
    }

    #[test]
    fn subjects_take_turns_where_one_thread_does_all() {
        let blocking = Blocking::default();
        for (subject, work) in [(1, 'a'), (1, 'b'), (2, 'c'), (1, 'd')] {
            blocking.add(subject, work);
        }
        let mut done = String::new();
        while blocking.run_next(|work| done.push(work)) {}
        assert_eq!(done, "acbd");
    }
}

//! The loop: mail, deadlines, and what idling costs, under each driver.

use mem::{Budget, Pool};
use reactor::{
    AnyDriver, Choice, Completion, Driver, DriverConfig, FileIo, Handler, Mailbox, Nanos,
    RunConfig, RunStats, mailbox, open, probe, run,
};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

enum Letter {
    Number(u64),
    ReadFile,
    Stop,
}

/// Notes what happens, and the turns between.
#[derive(Default)]
struct Notes {
    numbers: Vec<u64>,
    files: u32,
    turns: u32,
    deadline: Option<Nanos>,
    deadlines: u32,
    done: bool,
}

impl Handler<AnyDriver, Letter> for Notes {
    fn on_completion(&mut self, _: &mut AnyDriver, completion: Completion) {
        match completion {
            Completion::File { token: 5, result } => assert_eq!(result.unwrap(), 0),
            other => panic!("{other:?}"),
        }
        self.files += 1;
    }

    fn on_mail(&mut self, driver: &mut AnyDriver, letter: Letter) {
        match letter {
            Letter::Number(number) => self.numbers.push(number),
            Letter::Stop => self.done = true,
            Letter::ReadFile => {
                let file = Arc::new(OwnedFd::from(File::open("/dev/null").unwrap()));
                let buf = driver.pool().get(512).unwrap();
                // The process ends with the test; the buffer need not.
                let range = buf.range();
                std::mem::forget(buf);
                driver.read_at(&file, range, 0, 5);
            }
        }
    }

    fn on_turn(&mut self, _: &mut AnyDriver) {
        self.turns += 1;
    }

    fn deadline(&self) -> Option<Nanos> {
        self.deadline
    }

    fn on_deadline(&mut self, _: &mut AnyDriver, now: Nanos) {
        assert!(now >= self.deadline.unwrap());
        self.deadlines += 1;
        self.deadline = (self.deadlines < 3).then_some(now + 2_000_000);
    }

    fn is_done(&self) -> bool {
        self.done
    }
}

fn reactor(choice: Choice, spin_us_max: u64, tell: Sender<Mailbox<Letter>>) -> (Notes, RunStats) {
    let pool = Pool::new(Budget::new(16 << 20)).unwrap();
    let mut driver = open(choice, &DriverConfig::default(), pool).unwrap();
    let (mailbox, mail) = mailbox(driver.waker());
    tell.send(mailbox).unwrap();
    let mut notes = Notes {
        deadline: Some(driver.now() + 2_000_000),
        ..Notes::default()
    };
    let stats = run(&mut driver, &mail, &mut notes, &RunConfig { spin_us_max }).unwrap();
    (notes, stats)
}

fn choices() -> Vec<Choice> {
    match probe() {
        Ok(()) => vec![Choice::Uring, Choice::Epoll],
        Err(_) => vec![Choice::Epoll],
    }
}

#[test]
fn mail_files_and_deadlines_all_arrive() {
    for choice in choices() {
        for spin_us_max in [0, 50, u64::MAX] {
            let (tell, told) = channel();
            let thread = std::thread::spawn(move || reactor(choice, spin_us_max, tell));
            let mailbox = told.recv().unwrap();
            for number in 0..2000 {
                mailbox.send(Letter::Number(number));
                if number % 500 == 0 {
                    mailbox.send(Letter::ReadFile);
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            mailbox.send(Letter::Stop);
            let (notes, stats) = thread.join().unwrap();
            assert!(notes.numbers.into_iter().eq(0..2000));
            assert_eq!(notes.deadlines, 3);
            assert_eq!(u64::from(notes.turns), stats.turns);
            assert!(notes.files >= 3, "{} of 4", notes.files);
        }
    }
}

#[test]
fn an_idle_reactor_sleeps() {
    for choice in choices() {
        let (tell, told) = channel();
        let thread = std::thread::spawn(move || reactor(choice, 50, tell));
        let mailbox = told.recv().unwrap();
        std::thread::sleep(Duration::from_millis(300));
        mailbox.send(Letter::Stop);
        let (_, stats) = thread.join().unwrap();
        // Three deadlines and the stop wake it; nothing else does.
        assert!(stats.sleeps <= 12, "{stats:?}");
        assert_eq!(stats.spins, 0, "{stats:?}");
    }
}

#[test]
fn a_reactor_told_to_spin_never_sleeps() {
    for choice in choices() {
        let (tell, told) = channel();
        let thread = std::thread::spawn(move || reactor(choice, u64::MAX, tell));
        let mailbox = told.recv().unwrap();
        std::thread::sleep(Duration::from_millis(20));
        mailbox.send(Letter::Stop);
        let (_, stats) = thread.join().unwrap();
        assert_eq!(stats.sleeps, 0);
        assert!(stats.spins > 100);
    }
}

//! The reactor's drivers.

use std::io;

use reactor::{AnyDriver, Choice, Completion, Driver, DriverConfig, FileIo, Token, Wait};

use super::files::Files;

/// One of them.
pub struct Real {
    driver: AnyDriver,
    done: Vec<Completion>,
}

impl Real {
    pub fn open(choice: Choice) -> Real {
        let pool = mem::Pool::new(mem::Budget::new(64 << 20)).unwrap();
        Real {
            driver: reactor::open(choice, &DriverConfig::default(), pool).unwrap(),
            done: Vec::new(),
        }
    }
}

impl Files for Real {
    fn io(&mut self) -> &mut dyn FileIo {
        &mut self.driver
    }

    fn completion(&mut self) -> (Token, io::Result<u32>) {
        loop {
            match self.done.pop() {
                Some(Completion::File { token, result }) => return (token, result),
                Some(_) => panic!("a completion of no operation"),
                None => {
                    let for_ever = Wait::Until(u64::MAX);
                    self.driver.poll(for_ever, &mut self.done).unwrap();
                }
            }
        }
    }
}

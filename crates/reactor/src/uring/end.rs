//! The end of the io_uring driver.

use super::request::Request;
use super::socket::Slab;
use super::{CompletionKind, UringDriver, user_data};
use crate::sys;
use io_uring::cqueue;

impl UringDriver {
    /// Cancels everything and waits, within a bound, until it has ended.
    fn quiesce(&mut self) {
        for socket in self.sockets.iter_mut().filter(|socket| socket.fd.is_some()) {
            socket.closing.get_or_insert(0);
        }
        let data = user_data(CompletionKind::File, 0, u32::MAX);
        let cancel = Request::cancel_all().user_data(data);
        if self.ring.try_push(&cancel).is_err() {
            return;
        }
        self.owed += 1;
        let give_up = sys::now() + sys::DROP_WAIT_NS;
        let mut reaped = Vec::new();
        while self.owed > 0 && sys::now() < give_up {
            if self.ring.sleep(sys::DROP_WAIT_NS / 10).is_err() {
                return;
            }
            self.ring.reap(&mut reaped);
            let ended = reaped
                .drain(..)
                .filter(|entry| !cqueue::more(entry.flags()));
            self.owed -= ended.count() as u32;
        }
    }

    /// Better to lose memory than to let it be used twice: whatever the kernel
    /// may still write never goes back to where it came from, and the pool
    /// stays for the sake of buffers that its user has lent us. Regions need
    /// no care, since they stay mapped.
    fn lose_memory(&mut self) {
        std::mem::forget(std::mem::take(&mut self.sockets));
        std::mem::forget(std::mem::replace(&mut self.flights, Slab::new()));
        std::mem::forget(std::mem::take(&mut self.wake_count));
        std::mem::forget(self.pool.clone());
        self.stages.lose();
    }
}

impl Drop for UringDriver {
    /// Memory that the kernel may still write must not be used for anything else.
    fn drop(&mut self) {
        self.quiesce();
        if self.owed > 0 {
            tracing::error!("{} operations did not end; memory is lost", self.owed);
            self.lose_memory();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Driver, DriverConfig, SocketId, Wait};
    use mem::{Budget, Pool};
    use needs::needs;
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;

    /// Drops a driver that is owed a receive and, as if a disk held it back,
    /// one operation more; what it left of the pool.
    fn drop_owed(budget: &Arc<Budget>, receive: impl FnOnce(&mut UringDriver, SocketId)) -> Pool {
        let pool = Pool::new(Arc::clone(budget)).unwrap();
        let mut driver = UringDriver::new(&DriverConfig::default(), pool.clone()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (ours, _) = listener.accept().unwrap();
        let socket = driver.add_socket(ours.into()).unwrap();
        receive(&mut driver, socket);
        driver.poll(Wait::Now, &mut Vec::new()).unwrap();
        driver.owed += 1;
        drop(driver);
        pool
    }

    #[needs(io_uring)]
    #[test]
    fn a_stage_that_may_be_written_is_not_lent_again() {
        let budget = Budget::new(64 << 20);
        let mut at = std::ptr::null_mut();
        let pool = drop_owed(&budget, |driver, socket| {
            let mut stage = driver.pool().stage_of(4096);
            at = stage.spare_ptr();
            driver.recv(socket, None, Some(stage), 100, 1);
        });
        let mut others = Vec::new();
        for _ in 0..512 {
            let mut other = pool.stage_of(4096);
            assert_ne!(other.spare_ptr(), at, "memory is used twice");
            others.push(other);
        }
    }

    #[needs(io_uring)]
    #[test]
    fn the_pool_of_a_buffer_that_may_be_written_stays() {
        let budget = Budget::new(64 << 20);
        let pool = drop_owed(&budget, |driver, socket| {
            let buf = driver.pool().get(4096).unwrap();
            driver.recv(socket, Some(buf.range()), None, 0, 1);
        });
        drop(pool);
        assert_eq!(budget.used(), 2 << 20, "one chunk was in use");
    }
}

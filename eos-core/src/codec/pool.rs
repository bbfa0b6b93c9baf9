//! A pool of buffers for keys and values.
//!
//! The pool saves two allocations and two deallocations per record, a tenth of its cost. One worker is one thread, so
//! the pool is thread-local.

use std::cell::RefCell;

/// A record has a key and a value, and a closure may hold a few more.
const BUFFERS: usize = 8;
/// One large record must not hold memory forever.
const LARGEST: usize = 64 << 10;

thread_local! {
    static POOL: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A copy of the bytes, in used memory if there is some.
pub(super) fn copy(bytes: &[u8]) -> Vec<u8> {
    let mut buffer = POOL.with_borrow_mut(Vec::pop).unwrap_or_default();
    buffer.extend_from_slice(bytes);
    buffer
}

/// Keeps the memory for the next copy.
pub(super) fn give(mut buffer: Vec<u8>) {
    if buffer.capacity() > 0 && buffer.capacity() <= LARGEST {
        buffer.clear();
        POOL.with_borrow_mut(|pool| {
            if pool.len() < BUFFERS {
                pool.push(buffer);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_and_never_its_content() {
        give(Vec::with_capacity(100));
        let copied = copy(b"abc");
        assert_eq!(copied, b"abc");
        assert!(copied.capacity() >= 100);
        give(vec![0; LARGEST + 1]);
        assert_eq!(copy(b"").capacity(), 0, "what is too large is not kept");
    }
}

//! Reads many small files by several threads. A read of `/proc` or `/sys` costs some microseconds in
//! the kernel, and a machine with a thousand CPUs has tens of thousands of them.

use std::thread;

/// Fewer items than this are read by the caller alone: starting a thread costs as much as ten reads.
const ITEMS_PER_THREAD_MIN: usize = 64;
/// More threads than this wait for the kernel's locks rather than read.
const THREADS_MAX: usize = 8;

/// What `read` gives for every item, in the order of the items.
pub(crate) fn each<I: Sync, T: Send>(items: &[I], read: impl Fn(&I) -> T + Sync) -> Vec<T> {
    let most = (items.len() / ITEMS_PER_THREAD_MIN).min(THREADS_MAX);
    // How many processors there are costs some reads to learn.
    let threads = match most {
        0 | 1 => most,
        _ => thread::available_parallelism().map_or(1, |processors| processors.get().min(most)),
    };
    if threads < 2 {
        return items.iter().map(read).collect();
    }
    let read = &read;
    thread::scope(|scope| {
        let started: Vec<_> = items
            .chunks(items.len().div_ceil(threads))
            .map(|part| {
                let all = move || part.iter().map(read).collect::<Vec<T>>();
                (part, thread::Builder::new().spawn_scoped(scope, all))
            })
            .collect();
        started
            .into_iter()
            .flat_map(|(part, thread)| match thread {
                Ok(thread) => match thread.join() {
                    Ok(read) => read,
                    Err(panic) => std::panic::resume_unwind(panic),
                },
                // A limit on threads is no reason not to read.
                Err(_) => part.iter().map(read).collect(),
            })
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_that_of_the_items_however_many_there_are() {
        for count in [0, 1, 63, 128, 1000, 4097] {
            let items: Vec<usize> = (0..count).collect();
            let doubled: Vec<usize> = items.iter().map(|item| item * 2).collect();
            assert_eq!(each(&items, |item| item * 2), doubled);
        }
    }
}

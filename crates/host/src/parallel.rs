//! Reads many small files in several threads. A read of `/proc` or `/sys` takes some microseconds in the kernel, and
//! a machine with a thousand CPUs has tens of thousands of files.

use std::thread;

/// Fewer items than this are read by the caller alone: starting a thread costs as much as ten reads.
const ITEMS_PER_THREAD_MIN: usize = 64;
/// More threads than this only wait for the kernel's locks.
const THREADS_MAX: usize = 8;

/// The results of `read` for all items, in order.
pub(crate) fn each<I: Sync, T: Send>(items: &[I], read: impl Fn(&I) -> T + Sync) -> Vec<T> {
    let most = (items.len() / ITEMS_PER_THREAD_MIN).min(THREADS_MAX);
    // Finding the number of processors costs some reads.
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
                // If a thread limit is reached, continue with fewer.
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

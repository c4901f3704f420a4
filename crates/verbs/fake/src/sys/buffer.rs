//! Memory for tests to register.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

use linerate_verbs::Memory;

/// Zeroes, from the start of a page.
#[derive(Debug)]
pub struct Buffer {
    start: *mut u8,
    layout: Layout,
}

impl Buffer {
    /// So many bytes, at least one.
    pub fn new(length: usize) -> Self {
        let layout = Layout::from_size_align(length.max(1), 4096).expect("a length that can be");
        // SAFETY: the layout is not of length 0.
        let start = unsafe { alloc_zeroed(layout) };
        if start.is_null() {
            handle_alloc_error(layout);
        }
        Self { start, layout }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout and is freed once.
        unsafe { dealloc(self.start, self.layout) };
    }
}

// SAFETY: the allocation is the value's own and moves nowhere; nothing else refers to it.
unsafe impl Memory for Buffer {
    fn start(&self) -> *mut u8 {
        self.start
    }

    fn length(&self) -> usize {
        self.layout.size()
    }
}

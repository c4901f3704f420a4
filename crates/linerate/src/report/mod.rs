//! The listeners on a run: terminal, JSON, and one self-contained page.

//! Windowed keys.

use eos_protocol::windows::Window;

/// A key in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Windowed<K> {
    /// The key.
    pub key: K,
    /// The window.
    pub window: Window,
}

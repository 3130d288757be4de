//! Gives memory that was freed back to the system.
//!
//! The C library's allocator keeps what lies between pieces that are still in use: after thousands of connections have come
//! and gone, a server would stay as large as it was with all of them open. Only the allocator can let go of it, when asked.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod system {
    // SAFETY: declared as in malloc.h. It takes no pointer, and what is in use stays as it is.
    unsafe extern "C" {
        pub safe fn malloc_trim(pad: usize) -> std::ffi::c_int;
    }
}

/// Takes milliseconds, in which other threads may wait for memory: for quiet moments.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    system::malloc_trim(0);
}

#[cfg(test)]
mod tests {
    #[test]
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn what_was_freed_between_pieces_in_use_goes_back() {
        let resident = || {
            let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
            statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4
        };
        let mut pieces: Vec<Vec<u8>> = (0..4096).map(|_| vec![1; 16 << 10]).collect();
        let most = resident();
        let mut at = 0;
        // Every hundredth stays, and keeps what lies before it from being given back by itself.
        pieces.retain(|_| {
            at += 1;
            at % 100 == 0
        });
        super::give_back();
        let after = resident();
        assert_eq!(pieces.len(), 40);
        assert!(after + (32 << 10) < most, "{most} KiB, then {after}");
    }
}

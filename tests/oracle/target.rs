// SPDX-License-Identifier: Apache-2.0
// Target of the unwinding oracle: Rust's frames, iterators, formatting, and a caught panic.

use std::arch::asm;
use std::collections::BTreeMap;

#[inline(never)]
fn deep(n: u64, v: &mut Vec<String>) -> u64 {
    v.push(format!("{n:>5}"));
    if n > 4 {
        panic!("deep");
    }
    deep(n + 1, v) + v.len() as u64
}

#[inline(never)]
fn work() -> usize {
    let mut v = vec![5, 3, 9, 1, 7];
    v.sort_by(|a, b| b.cmp(a));
    let m: BTreeMap<_, _> = v.iter().map(|n| (n, n.to_string())).collect();
    let caught = std::panic::catch_unwind(|| deep(0, &mut Vec::new()));
    m.len() + caught.is_err() as usize
}

fn main() {
    std::panic::set_hook(Box::new(|_| {}));
    unsafe { asm!("int3") };
    let n = work();
    unsafe { asm!("int3") };
    std::process::exit((n == 0) as i32);
}

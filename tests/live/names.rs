// SPDX-License-Identifier: Apache-2.0
// Two functions that burn CPU for the seconds in the first argument; see live_names.sh.
use std::time::{Duration, Instant};

trait Work {
    fn hot_leaf(&mut self, n: u64) -> u64;
}

struct Counter {
    n: u64,
}

impl Work for Counter {
    #[inline(never)]
    fn hot_leaf(&mut self, n: u64) -> u64 {
        self.n += 1;
        (0..n).fold(self.n, |s, i| std::hint::black_box(s.wrapping_add((i * 7) % 13)))
    }
}

#[inline(never)]
fn outer_loop<W: Work>(w: &mut W, end: Instant) -> u64 {
    let mut t = 0u64;
    while Instant::now() < end {
        t = t.wrapping_add(w.hot_leaf(100000));
    }
    t
}

fn main() {
    let s: f64 = std::env::args().nth(1).unwrap().parse().unwrap();
    println!("{}", outer_loop(&mut Counter { n: 0 }, Instant::now() + Duration::from_secs_f64(s)));
}

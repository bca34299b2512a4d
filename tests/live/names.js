// SPDX-License-Identifier: Apache-2.0
// Two functions that burn CPU for the seconds in the first argument; see live_names.sh.
function hotLeaf(n) { let s = 0; for (let i = 0; i < n; i++) s += (i * 7) % 13; return s; }
function outerLoop() { let t = 0; const end = Date.now() + (+process.argv[2]) * 1000; while (Date.now() < end) t += hotLeaf(100000); return t; }
console.log(outerLoop());

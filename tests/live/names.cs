// SPDX-License-Identifier: Apache-2.0
// Two functions that burn CPU for the seconds in the first argument; see live_names.sh.
using System;
static class Busy {
  [System.Runtime.CompilerServices.MethodImpl(System.Runtime.CompilerServices.MethodImplOptions.NoInlining)]
  static long HotLeaf(int n) { long s = 0; for (int i = 0; i < n; i++) s += (i * 7) % 13; return s; }
  static void Main(string[] a) { long t = 0; var end = DateTime.UtcNow.AddSeconds(double.Parse(a[0])); while (DateTime.UtcNow < end) t += HotLeaf(100000); Console.WriteLine(t); }
}

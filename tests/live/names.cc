// SPDX-License-Identifier: Apache-2.0
// Two functions that burn CPU for the seconds in the first argument; see live_names.sh.
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>
namespace work {
static inline __attribute__((always_inline)) unsigned innermost(unsigned x) { return x * 2654435761u ^ x >> 7; }
static inline __attribute__((always_inline)) unsigned middle(unsigned x) {
	unsigned s = 0;
	for (int i = 0; i < 8; i++)
		s += innermost(x + i);
	return s;
}
template <typename T> __attribute__((noinline)) T hot(const std::vector<T> &v) {
	T s = 0;
	for (T x : v)
		s += middle(x);
	return s;
}
struct Runner {
	std::vector<unsigned> v;
	__attribute__((noinline)) unsigned run(double seconds) {
		unsigned s = 0;
		time_t end = time(nullptr) + (time_t)seconds;
		while (time(nullptr) < end)
			s += hot(v);
		return s;
	}
};
}
int main(int, char **a) {
	work::Runner r;
	for (unsigned i = 0; i < 100000; i++)
		r.v.push_back(i);
	printf("%u\n", r.run(atof(a[1])));
}
